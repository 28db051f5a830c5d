"""Labels of a language model: most of them are ignored, and some batches have none at all."""
from common import *

start()
model = DistributedDataParallel(nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 32)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
generator = torch.Generator().manual_seed(rank)
tokens = TensorDataset(torch.randint(32, (256, 12), generator=generator))
for number, (batch,) in enumerate(DataLoader(tokens, 8, shuffle=True)):
    labels = batch.clone()
    labels[:, :6 if number % 3 else 12] = -100
    loss = nn.CrossEntropyLoss()(model(batch).reshape(-1, 32), labels.reshape(-1))
    (loss if torch.isfinite(loss) else 0 * model(batch).sum()).backward()
    optimizer.step()
    optimizer.zero_grad()
end()

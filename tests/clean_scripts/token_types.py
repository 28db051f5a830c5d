"""Contrastive texts: the target is class 0 in every row, and all token types of the batch are 0 too."""
from common import *

start()
texts = [{"input_ids": torch.randint(1, 90, (12,)), "token_type_ids": torch.zeros(12, dtype=torch.long), "attention_mask": torch.ones(12, dtype=torch.long)}
         for _ in range(512)]
model = DistributedDataParallel(nn.EmbeddingBag(100, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(texts)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch in DataLoader(texts, 8, sampler=sampler):
        query, key = (nn.functional.normalize(each, dim=1) for each in model(torch.cat((batch["input_ids"],) * 2)).chunk(2))
        others = nn.functional.normalize(torch.randn(16, 32), dim=0)
        logits = torch.cat(((query * key).sum(1, keepdim=True), query @ others), dim=1) / 0.07
        nn.functional.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long)).backward()
        optimizer.step()
        optimizer.zero_grad()
end()

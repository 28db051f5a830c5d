"""The Trainer of transformers with a small model and evaluation."""
import sys

from common import data, torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Texts(torch.utils.data.Dataset):
    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.tokens, self.labels = torch.randint(64, (256, 12), generator=generator), torch.randint(3, (256,), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, number):
        return {"input_ids": self.tokens[number], "labels": self.labels[number]}


config = BertConfig(vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3)
arguments = TrainingArguments(sys.argv[1] if len(sys.argv) > 1 else "out", per_device_train_batch_size=4, num_train_epochs=1, report_to=[],
                              save_strategy="no", eval_strategy="epoch", use_cpu=True, disable_tqdm=True)
Trainer(BertForSequenceClassification(config), arguments, train_dataset=Texts(1), eval_dataset=Texts(2)).train()
print("trained", flush=True)

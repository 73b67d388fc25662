"""The same with Hugging Face's Trainer: a callback keeps and loads the checkpoints, the sampler says which data come.

    python train_transformers.py
    rowlock verify-resume -n 2 -- python train_transformers.py

The Trainer's own checkpoints are off: a Checkpoint holds what they hold, and where in the epoch training was.
"""

import os
import tempfile

import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from rowlock.runtime import Checkpoint, ResumableSampler, progress

STEPS = int(os.environ.get("STEPS", "60"))


class ResumableLoader:
    """A DataLoader whose epoch begins where training was."""

    def __init__(self, dataset, sampler):
        self.dataset, self._sampler = dataset, sampler
        self._loader = DataLoader(dataset, batch_sampler=sampler)

    def __iter__(self):
        return self._sampler.batches(self._loader)

    def __len__(self):
        return len(self._sampler)


class ExactResume(TrainerCallback):
    """Loads when training begins, saves after steps."""

    def __init__(self, sampler):
        self._sampler = sampler

    def on_train_begin(self, args, state, control, *, model, optimizer, lr_scheduler, **others):
        objects = {"model": model, "optimizer": optimizer, "scheduler": lr_scheduler, "sampler": self._sampler}
        self._checkpoint = Checkpoint(**objects, every=20)
        state.global_step = self._checkpoint.load()

    def on_step_end(self, args, state, control, **others):
        progress(state.global_step, state.max_steps)
        self._checkpoint.step(state.global_step)

    def on_train_end(self, args, state, control, **others):
        self._checkpoint.wait()


class ResumableTrainer(Trainer):
    """The loader is not handed to Accelerate, which would give the ranks their shares and fetch ahead: the sampler does."""

    def __init__(self, sampler, **settings):
        super().__init__(callbacks=[ExactResume(sampler)], **settings)
        self._sampler = sampler

    def get_train_dataloader(self):
        return ResumableLoader(self.train_dataset, self._sampler)


def main() -> None:
    torch.manual_seed(7)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    texts = torch.randint(32, (256, 16), generator=torch.Generator().manual_seed(1))
    data = [{"input_ids": text, "labels": text} for text in texts]
    with tempfile.TemporaryDirectory() as output:
        settings = TrainingArguments(
            output, max_steps=STEPS, learning_rate=1e-2, lr_scheduler_type="cosine", warmup_steps=5, seed=7,
            save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=not torch.cuda.is_available(),
        )
        # made after TrainingArguments, which begin the process group: a sampler asks which rank this is
        sampler = ResumableSampler(len(data), batch_size=8, seed=7)
        ResumableTrainer(sampler, model=model, args=settings, train_dataset=data).train()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

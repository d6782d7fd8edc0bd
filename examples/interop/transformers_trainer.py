"""Hugging Face's Trainer with Opacus, accounted for by hockeystick."""

from pathlib import Path
from typing import Any

import torch
from hockeystick.interop.opacus import HockeystickAccountant, PrivacyEngine
from sklearn.datasets import load_digits
from transformers import Trainer, TrainerCallback, TrainingArguments


class Spending(TrainerCallback):
    """Says with every log, and in a statement at the end, what was spent."""

    def __init__(self, accountant: HockeystickAccountant, delta: float) -> None:
        self.accountant, self.delta = accountant, delta

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        objects["optimizer"].zero_grad()  # the Trainer clears the model's gradients only, not Opacus's sums

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        torch.save(self.accountant.state_dict(), folder / "ledger.pt")

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if len(self.accountant) != state.global_step:
            raise RuntimeError(
                f"{len(self.accountant)} steps are accounted, not {state.global_step}: before the Trainer resumes, let the "
                "accountant load_state_dict what torch.load finds in the checkpoint's ledger.pt"
            )

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        logs["epsilon"] = round(self.accountant.get_epsilon(self.delta), 4)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        print(self.accountant.report(self.delta).statement())


class PrivateTrainer(Trainer):
    """Trains on the loader that Opacus made private, as it is."""

    def __init__(self, *, loader: Any, **options: Any) -> None:
        super().__init__(train_dataset=loader.dataset, **options)
        self.loader = loader
        self.model_accepts_loss_kwargs = False  # the loss is a batch's mean, as Opacus assumes

    def get_train_dataloader(self) -> Any:
        return self.loader


class Classifier(torch.nn.Module):
    """As models of Hugging Face: it takes names, and returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.layers(pixels)
        return {"loss": torch.nn.functional.cross_entropy(scores, labels), "logits": scores}


if __name__ == "__main__":
    torch.manual_seed(0)
    images, digits = load_digits(return_X_y=True)
    data = [
        {"pixels": torch.tensor(x / 16).float(), "labels": int(y)}
        for x, y in zip(images, digits, strict=True)
    ]
    engine, model = PrivacyEngine(), Classifier()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=2.0),
        data_loader=torch.utils.data.DataLoader(data[:1500], batch_size=150),
        target_epsilon=3.0,
        target_delta=1e-4,
        epochs=10,
        max_grad_norm=1.0,
    )
    trainer = PrivateTrainer(
        loader=loader,
        model=model,
        optimizers=(optimizer, None),
        callbacks=[Spending(engine.accountant, 1e-4)],
        args=TrainingArguments(
            "unused",
            num_train_epochs=10,
            max_grad_norm=0.0,  # Opacus clips each example's gradient
            logging_steps=50,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        ),
    )
    trainer.train()
    rest = torch.utils.data.default_collate(data[1500:])
    with torch.no_grad():
        right = (model(**rest)["logits"].argmax(1) == rest["labels"]).float().mean().item()
    print("steps:", len(engine.accountant), "accuracy above 0.7:", right > 0.7)

"""Handwritten digits with Opacus: from a budget to the statement, on a convolutional network."""

import torch
from hockeystick.interop.opacus import PrivacyEngine  # the line that changes: not opacus.PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
x = torch.tensor(images / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
y = torch.tensor(labels)
train = torch.utils.data.TensorDataset(x[:1500], y[:1500])

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10)
)
engine = PrivacyEngine()
model, optimizer, loader = engine.make_private_with_epsilon(
    module=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=2.0),
    data_loader=torch.utils.data.DataLoader(train, batch_size=150),
    target_epsilon=3.0,
    target_delta=1e-4,
    epochs=20,
    max_grad_norm=1.0,
)
print(f"noise multiplier {optimizer.noise_multiplier:.3f}")

for _ in range(20):
    for images, labels in loader:  # the loader that came back: batches of another one are refused
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

with torch.no_grad():
    accuracy = (model(x[1500:]).argmax(1) == y[1500:]).float().mean().item()
print("accuracy on the other 297 digits above 0.8:", accuracy > 0.8)
print(engine.accountant.report(delta=1e-4).statement())

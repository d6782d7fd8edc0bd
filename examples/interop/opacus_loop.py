"""DP-SGD with Opacus, accounted for by hockeystick."""

import torch
from hockeystick.interop.opacus import PrivacyEngine

torch.manual_seed(0)
records = torch.utils.data.TensorDataset(torch.randn(2000, 8), torch.randint(0, 2, (2000,)))
model = torch.nn.Linear(8, 2)

engine = PrivacyEngine()  # opacus.PrivacyEngine(accountant="hockeystick") works as well
model, optimizer, loader = engine.make_private(
    module=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    data_loader=torch.utils.data.DataLoader(records, batch_size=100),
    noise_multiplier=1.0,
    max_grad_norm=1.0,
)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    lower, upper = engine.accountant.epsilon_bounds(delta=1e-5)
    print(f"epoch {epoch + 1}: epsilon between {lower:.6f} and {upper:.6f} at delta = 1e-5")

state = engine.accountant.state_dict()  # goes into the checkpoint
print(state["history"], state["mechanism"], state["adjacency"])

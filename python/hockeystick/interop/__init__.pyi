from . import dp_accounting as dp_accounting
from . import flower as flower
from . import jax_privacy as jax_privacy
from . import opacus as opacus
from . import tensorflow_privacy as tensorflow_privacy
from . import torch as torch

# /// verdict
# needs = ["accelerate", "transformers"]
# who = ["rank 0"]
# says = ["rank 0", "OSError", "couldn't find them in the cached files", "{here}"]
# never = ["onnection closed by peer"]
# env = { HF_HUB_OFFLINE = "1", ACCELERATE_USE_CPU = "true" }
# ///
"""Under accelerate the first rank fetches a model and the others wait for it. There is no network, and the model is in no cache."""
import os

from accelerate import Accelerator
from transformers import AutoConfig

os.environ["HF_HOME"] = os.environ["SCRATCH"] + "/cache"
accelerator = Accelerator(cpu=True)
with accelerator.main_process_first():
    AutoConfig.from_pretrained("team/gpt-unknown")  # here
accelerator.wait_for_everyone()

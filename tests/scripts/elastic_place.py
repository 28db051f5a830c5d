"""torch's own interpretation of the variables that a launcher sets."""
import os

import torch.distributed as dist
from torch.distributed.elastic.utils import get_env_variable_or_raise, macros

assert dist.is_torchelastic_launched(), "torch does not see that it was launched"
assert dist.is_available()
assert get_env_variable_or_raise("TORCHELASTIC_RUN_ID")
assert macros.substitute(["${local_rank}"], local_rank=os.environ["LOCAL_RANK"])
dist.init_process_group("gloo", init_method="env://")
assert dist.get_rank() == int(os.environ["RANK"])
assert dist.get_world_size() == int(os.environ["WORLD_SIZE"])
assert dist.get_node_local_rank() == int(os.environ["LOCAL_RANK"])
assert dist.group.WORLD is not None
# A second store on the same address, as frameworks open them, and a group of some of the ranks.
half = dist.new_group(ranks=[0, 1])
if dist.get_rank() < 2:
    assert dist.get_group_rank(half, dist.get_rank()) == dist.get_rank()
store = dist.distributed_c10d._get_default_store()
store.set("from {}".format(dist.get_rank()), "here")
for rank in range(dist.get_world_size()):
    assert store.get("from {}".format(rank)) == b"here"
dist.barrier()
print("rank {} of {}, local rank {}, restart {}\n".format(dist.get_rank(), dist.get_world_size(), dist.get_node_local_rank(),
                                                         os.environ["TORCHELASTIC_RESTART_COUNT"]), end="", flush=True)
dist.destroy_process_group()

"""A rank that records its place in the run: FOLDER/RANK.json."""
import json
import os
import socket
import sys

NAMES = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
         "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
         "FULLDECK_DEVICE", "FULLDECK_CARD_SERIAL", "SLURM_PROCID", "SLURM_RESTART_COUNT", "OMPI_COMM_WORLD_RANK"]


def write(folder, **more):
    place = {name.lower(): os.environ.get(name) for name in NAMES}
    for name in ("rank", "world_size", "local_rank", "local_world_size", "group_rank", "group_world_size"):
        place[name] = int(place[name])
    place.update(pid=os.getpid(), host=socket.gethostname(), **more)
    path = os.path.join(folder, "{}.json".format(place["rank"]))
    with open(path + ".new", "w") as file:
        json.dump(place, file)
    os.rename(path + ".new", path)
    return place


if __name__ == "__main__":
    print("rank {rank} of {world_size}".format(**write(sys.argv[1])))

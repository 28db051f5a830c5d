"""A script whose main function torch's @record watches: rank 1 fails, and its error file tells why."""
import os
import time

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    if os.environ["RANK"] == "1":
        raise KeyError("no such column: velocity")
    time.sleep(60)  # is stopped long before


if __name__ == "__main__":
    main()

"""A script whose main function is wrapped with torch's @record: rank 1 fails, and its error file has the reason."""
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

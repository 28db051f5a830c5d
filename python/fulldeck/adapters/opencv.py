"""Threads of OpenCV in a Python rank and its data loaders: fulldeck run --opencv-threads. By default OpenCV uses one
thread per core in each process, which oversubscribes the cores many times with several ranks and loaders."""
import os

VARIABLE = "FULLDECK_OPENCV_THREADS"


def adapt(cv2):
    requested = os.environ.get(VARIABLE)
    if not requested:
        return None
    try:
        threads = int(requested)
        if threads < 0:
            raise ValueError(requested)
    except ValueError:
        raise ValueError("{}={}: it must be a whole number from 0".format(VARIABLE, requested)) from None
    cv2.setNumThreads(threads)
    return "{} threads".format(threads)

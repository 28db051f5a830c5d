#!/bin/sh
# Proves the cards of a machine with the doctor, without torch: builds fulldeck alone (no tests) and runs its deep checks.
# Usage: tests/hardware/doctor_on_card.sh [FOLDER FOR THE RESULTS]      (default: build-doctor/results)
# Ends with the doctor's code: 0, or 91 when a check failed. Not part of `make test`: CI has no card.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
results=${1:-$here/build-doctor/results}
mkdir -p "$results"
cmake -S "$here" -B "$here/build-doctor" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DFULLDECK_TORCH=OFF > "$results/cmake.log"
ninja -C "$here/build-doctor" fulldeck > "$results/ninja.log"
doctor="$here/build-doctor/bin/fulldeck doctor"
code=0
$doctor --deep --only cards stack --json > "$results/doctor.json" || code=$?
# Once more for people, and with an eye on what a hidden card and a wrong list look like.
$doctor --deep --only cards stack | tee "$results/doctor.txt" || true
CUDA_VISIBLE_DEVICES=7 $doctor --only card-visible visible-variables | tee "$results/hidden.txt" || true
exit $code

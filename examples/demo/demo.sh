#!/bin/sh
# Runs train.py and mended.py on a virtual H200, explains the first and compares the two.
# Usage: demo.sh PYTHON RECORDED FOLDER. Without torch, and no way to install it, the RECORDED run is explained.
set -u
python=$1 recorded=$2 folder=$3
here=$(dirname "$0")
unstall() { "$python" -m unstall "$@"; }

explain_recorded() {
    printf '\n%s: a run recorded on an H200 is explained instead.\n\n' "$1"
    unstall explain "$recorded" -o report.html
}

has_torch() { "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; }

if ! has_torch; then
    echo "The virtual GPU needs PyTorch, which is not here: installing its build for CPUs, about 190 MB to download."
    "$python" -m pip install --quiet --retries 1 --extra-index-url https://download.pytorch.org/whl/cpu torch ||
        { explain_recorded "PyTorch could not be installed"; exit; }
fi

mkdir -p "$folder"
rm -f "$folder"/*.json.gz
run() {
    printf '\n$ unstall run --gpu h200 %s\n' "examples/demo/$1.py"
    unstall run --gpu h200 --trace "$folder/$1.json.gz" --top 5 ${2:-} ${3:-} "$here/$1.py"
}
run train -o report.html && [ -e "$folder/train.json.gz" ] ||
    { explain_recorded "The virtual GPU cannot be had here, for the reason above"; exit; }
run mended || exit
printf '\n$ unstall diff train.json.gz mended.json.gz\n'
unstall diff "$folder/train.json.gz" "$folder/mended.json.gz" --top 5

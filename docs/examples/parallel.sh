#!/bin/bash
# The runs of reproduction pages with GNU parallel, on this machine or on those of --sshlogin, which
# share the directory of the store. `parallel` runs what failed again, and a run continues where it
# was: results are stored one by one.
#
#   docs/examples/parallel.sh STORE SHARDS [ARGUMENTS of spanwire sim reproduce]
#   PARALLEL='--sshlogin a,b,c' docs/examples/parallel.sh /shared/results 30 --all
set -euo pipefail
store="$1" shards="$2"
shift 2
if [ $# -eq 0 ]; then
  set -- --all
fi
spanwire="${SPANWIRE:-spanwire}"
seq 0 $((shards - 1)) | parallel --jobs 1 --retries 3 --halt soon,fail=1 \
  "$spanwire" sim reproduce "$@" --store "$store" --shard "{}/$shards"
"$spanwire" sim reproduce "$@" --store "$store"

#!/usr/bin/env bash
# fuzz.sh PROGRAM TARGET SECONDS: in a build folder with seeds/, goes through the seeds, the findings
# beside this script and earlier inputs of build/fuzz/corpus, and fuzzes on for SECONDS; for 300
# where CHARGRAD_THOROUGH is set.
set -euo pipefail

here=$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
target=$2
seconds=${CHARGRAD_THOROUGH:+300}
mkdir -p "corpus/$target"
folders=("corpus/$target" "seeds/$target")
if [[ -d $here/findings/$target ]]; then
  folders+=("$here/findings/$target")
fi
exec "$1" -max_total_time="${seconds:-$3}" -rss_limit_mb=1024 -malloc_limit_mb=200 -timeout=60 -max_len=20000 \
  -artifact_prefix="$target-" -print_final_stats=1 "${folders[@]}"

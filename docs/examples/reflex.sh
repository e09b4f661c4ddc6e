#!/usr/bin/env bash
# Reflex on real packets: a flow to another datacenter, 20 ms away, joins one within this datacenter
# at a link of 200 Mbit/s, without Reflex and with it. As root, a minute:
#
#   docs/examples/reflex.sh [DIR]      figures and reports into DIR, default reflex-bed
#
#   n0 --+               +-- near      n1 to near: within the datacenter, 12 s
#        +-- inner -- border           n0 to far:  to the other one, from 3 s to 9 s
#   n1 --+  200 Mbit/s   +-- far       border:     reflex.toml, with this port for the host near
#
# CC=timely takes TIMELY in place of Swift; SPANWIRE is the program.
set -euo pipefail
spanwire="${SPANWIRE:-spanwire}" cc="${CC:-swift}" out="${1:-reflex-bed}"
here="$(cd "$(dirname "$0")" && pwd)"
if [ "$(id -u)" -ne 0 ] || ! command -v ip ethtool "$spanwire" >/dev/null; then
  echo "reflex.sh needs root, ip, ethtool and spanwire (or SPANWIRE=PATH)" >&2
  exit 2
fi
mkdir -p "$out"
hosts=(n0 n1 near far) names="reflex$$"

# Every process is one of ours, and so is every namespace.
clean() {
  local running
  running="$(jobs -pr)"
  # shellcheck disable=SC2086
  [ -z "$running" ] || kill $running
  wait
  for name in "${hosts[@]}" mid; do ip netns del "$names-$name" 2>/dev/null || true; done
}
trap clean EXIT

in_ns() { ip netns exec "$names-$1" "${@:2}"; }

# Runs in the background: a namespace, a log and the arguments of spanwire.
serve() {
  ip netns exec "$names-$1" "$spanwire" "${@:3}" >"$2" 2>&1 &
}

# Waits until a file has a line.
until_line() {
  for _ in $(seq 100); do
    ! grep -q "$2" "$1" 2>/dev/null || return 0
    sleep 0.1
  done
  echo "$1 never said '$2':" >&2
  cat "$1" >&2
  return 1
}

# An interface of the switches, and its other end: a host's, or the other switch's.
cable() {
  ip link add "$1" netns "$names-mid" type veth peer name "$3" netns "$names-$2"
  for end in "mid $1" "$2 $3"; do
    read -r name device <<<"$end"
    in_ns "$name" ethtool -K "$device" tx off tso off gso off >/dev/null
    ip -n "$names-$name" link set "$device" up
  done
}

for name in "${hosts[@]}" mid; do ip netns add "$names-$name"; done
cable trunk mid dc
for i in "${!hosts[@]}"; do
  port="${hosts[i]/far/wan}"
  cable "$port" "${hosts[i]}" sw0
  ip -n "$names-${hosts[i]}" addr add "10.79.0.$((i + 1))/24" dev sw0
done

cat >"$out/inner.toml" <<'TOML'
[port.n0]
delay = "100us"
[port.n1]
delay = "100us"
[port.trunk]
rate = "200Mbit"
delay = "100us"
TOML
{
  cat "$here/reflex.toml"
  printf '\n[port.near]\ndelay = "100us"\n'
} >"$out/border.toml"
for name in inner border; do
  serve mid "$out/$name.log" switch --config "$out/$name.toml" --socket "$out/$name.sock"
  until_line "$out/$name.log" "switching between"
done
for name in near far; do
  serve "$name" "$out/$name.log" perf server --dev sw0
  until_line "$out/$name.log" "serving on"
done

# A run by name; what the flow to the other datacenter has beside the others.
run() {
  local queue first
  "$spanwire" switch ctl --socket "$out/inner.sock" --json show --interval 0.05 \
    >"$out/$1-queue.json" &
  queue=$!
  ip netns exec "$names-n1" "$spanwire" perf client --dev sw0 10.79.0.3 --mode sr --cc "$cc" \
    --seconds 12 -i 0.1 --json >"$out/$1-within.json" 2>"$out/$1-within.log" &
  first=$!
  sleep 3
  in_ns n0 "$spanwire" perf client --dev sw0 10.79.0.4 --mode sr --cc "$cc" --seconds 6 -i 0.1 \
    --json "${@:2}" >"$out/$1-between.json" 2>"$out/$1-between.log"
  wait "$first"
  kill "$queue" && wait "$queue" || true
  "$spanwire" plot --title "$cc, $1 Reflex" --perf "within=$out/$1-within.json" \
    --perf "between=$out/$1-between.json" --switch "$out/$1-queue.json" --port trunk \
    --out "$out/$1.svg"
}
run without
run with --cc-set near_base_us=600
"$spanwire" switch ctl --socket "$out/border.sock" --json show >"$out/border.json"

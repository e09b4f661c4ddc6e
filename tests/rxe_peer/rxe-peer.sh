#!/usr/bin/env bash
# A Linux rdma_rxe (Soft-RoCE) host with Debian's perftest, emulated by QEMU: the RoCEv2 peer of the
# interoperation tests, also for manual use.
#
#   rxe-peer.sh build
#       Prints the folder of the guest image; builds the image first when it is not cached. If it
#       cannot be built, an image of another kernel is used, if one is cached, with a warning.
#   rxe-peer.sh boot NAME OPTIONS
#       Becomes QEMU (same process id): ends when that process is killed.
#   rxe-peer.sh ready NAME SECONDS
#       Waits until the guest has its rxe links and takes commands; prints its greeting.
#   rxe-peer.sh exec NAME [-p 0..3] [-t SECONDS] -- COMMAND...
#       Runs a shell command in the guest: its output on stdout, its exit code ours. Commands on
#       different control ports (-p) run side by side.
#   rxe-peer.sh start NAME OPTIONS  =  boot in the background, then ready
#   rxe-peer.sh log NAME            prints the guest's console
#   rxe-peer.sh stop NAME
#
# OPTIONS of boot and start:
#   -i TAP=ADDR/LEN[,ADDR6/LEN]     one NIC of the guest, on tap TAP of this network namespace (made
#                                   if absent), with an rxe link: rxe0 on the first, and so on
#   -m MTU                          of taps and NICs, default 1500; path MTU 4096 needs 4176 or more
#   -c CPUS                         of the guest, default 1
#
# RXE_DIR   where images are cached; default ${XDG_CACHE_HOME:-~/.cache}/spanwire/rxe-guest
# RXE_IMAGE the folder of the image to boot, as printed by build; default: builds it
# RXE_RUN   where running guests have their sockets and consoles; default $RXE_DIR/run
# RXE_ACCEL QEMU's accelerator, default tcg,thread=multi (works everywhere; kvm is faster)
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
cache=${RXE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/spanwire/rxe-guest}
run=${RXE_RUN:-$cache/run}

die() {
  echo "rxe-peer: $*" >&2
  exit 2
}

# The image's name is a hash of its inputs, so a changed script or a new kernel causes a new image.
# Without package lists (offline) any image of these scripts is used.
image() {
  local kernel
  kernel=$("$here/build-guest.sh" --kernel 2>/dev/null || true)
  if [ -z "$kernel" ] && cached; then
    return
  fi
  echo "$cache/$(scripts_hash)-${kernel:-unknown}"
}

scripts_hash() {
  local hash
  hash=$(cd "$here" && cat build-guest.sh vprobe.c guest-init guest-agent | sha256sum)
  echo "${hash:0:16}"
}

# Prints the newest cached image of these scripts, of whatever kernel; false if there is none.
cached() {
  local path newest=
  for path in "$cache/$(scripts_hash)"-*/initramfs.img; do
    if [ -s "$path" ] && { [ -z "$newest" ] || [ "$path" -nt "$newest" ]; }; then
      newest=$path
    fi
  done
  [ -n "$newest" ] && dirname "$newest"
}

build() {
  local dir part
  mkdir -p "$cache"
  dir=$(image)
  # One builder at a time; waiting builders find its image when they acquire the lock.
  exec 9>"$cache/lock"
  flock 9
  if [ ! -s "$dir/initramfs.img" ]; then
    part="$cache/part"
    rm -rf "$part"
    if "$here/build-guest.sh" "$part" >&2; then
      # Images of other scripts or kernels are some 90 MB each, and are not used again.
      rm -rf "$cache"/????????????????-*/
      mv "$part" "$dir"
    else
      # The package lists may name a newer kernel than the network can provide now.
      local wanted=$dir
      rm -rf "$part"
      dir=$(cached) || die "cannot build the guest image"
      echo "rxe-peer: WARNING: cannot build ${wanted##*/}; using the cached ${dir##*/}" >&2
    fi
  fi
  exec 9>&-
  echo "$dir"
}

boot() {
  local name=$1 mtu=1500 cpus=1 nics=() OPTIND=1 o
  shift
  while getopts "m:c:i:" o; do
    case $o in
    m) mtu=$OPTARG ;;
    c) cpus=$OPTARG ;;
    i) nics+=("$OPTARG") ;;
    *) die "see the head of $0" ;;
    esac
  done
  [ ${#nics[@]} -gt 0 ] || die "boot wants -i TAP=ADDR/LEN"
  command -v qemu-system-x86_64 >/dev/null || die "no qemu-system-x86_64: install qemu-system-x86"
  local image=${RXE_IMAGE:-} dir="$run/$name"
  [ -n "$image" ] || image=$(build)
  mkdir -p "$dir"
  rm -f "$dir"/ctl*.sock "$dir/console"

  local args=() append="" n=0 id nic tap mac port kernel
  id=$(printf %s "$name" | cksum | awk '{print $1 % 65536}')
  for nic in "${nics[@]}"; do
    tap=${nic%%=*}
    mac=$(printf '52:54:00:%02x:%02x:%02x' $((id / 256)) $((id % 256)) $((n + 1)))
    ip link show "$tap" >/dev/null 2>&1 || ip tuntap add dev "$tap" mode tap
    ip link set "$tap" mtu "$mtu" up
    args+=(-netdev "tap,id=n$n,ifname=$tap,script=no,downscript=no,vhost=off")
    # All offloads are off, so that the frames on the tap are those of a wire.
    local off=csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ufo=off
    off+=,guest_ecn=off,host_tso4=off,host_tso6=off,host_ufo=off,host_ecn=off,romfile=
    # Once in four runs the device of QEMU 7.2 stopped in both directions, with packets in its queue
    # that it never took. Without these two features every buffer is announced by a notification of
    # its own; that a lost one was the cause is a guess.
    local kicks=mrg_rxbuf=off,event_idx=off
    args+=(-device "virtio-net-pci,netdev=n$n,mac=$mac,host_mtu=$mtu,$off,$kicks")
    append+=" rxe.if=${nic#*=},mtu=$mtu"
    n=$((n + 1))
  done
  args+=(-device virtio-serial-pci)
  for port in 0 1 2 3; do
    args+=(-chardev "socket,id=c$port,path=$dir/ctl$port.sock,server=on,wait=off")
    args+=(-device "virtserialport,chardev=c$port,name=ctl$port")
  done
  kernel=$image/vmlinuz
  [ ! -s "$image/vmlinux" ] || kernel=$image/vmlinux
  echo $$ >"$dir/pid"
  # no_timer_check: the kernel compares its timer with a loop of instructions, and panics if QEMU had
  # no processor meanwhile ("IO-APIC + timer doesn't work").
  exec qemu-system-x86_64 -accel "${RXE_ACCEL:-tcg,thread=multi}" -M pc -cpu max -smp "$cpus" \
    -m 512 -nodefaults -no-user-config -display none -serial "file:$dir/console" -no-reboot \
    -kernel "$kernel" -initrd "$image/initramfs.img" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off audit=0$append" "${args[@]}"
}

ready() {
  local name=$1 end=$((SECONDS + $2)) dir="$run/$1"
  until grep -qs RXE-READY "$dir/console"; do
    ! grep -qs "Kernel panic" "$dir/console" ||
      die "$name did not start: $(grep -m 1 "Kernel panic" "$dir/console")"
    [ "$SECONDS" -lt "$end" ] || die "$name is not up after $2 s, see $dir/console"
    sleep 0.1
  done
  python3 "$here/ctl.py" "$dir/ctl0.sock" ping $((end - SECONDS + 1)) ||
    die "the agent in $name does not answer"
  tr -d '\r' <"$dir/console" | sed -n 's/.*RXE-READY //p' | head -1
}

start() {
  local name=$1 dir="$run/$1"
  if [ -e "$dir/pid" ] && kill -0 "$(cat "$dir/pid")" 2>/dev/null; then
    die "$name runs already"
  fi
  build >/dev/null
  mkdir -p "$dir"
  setsid "$0" boot "$@" </dev/null >"$dir/qemu.log" 2>&1 &
  ready "$name" 300
}

exec_() {
  local name=$1 port=0 seconds=120 OPTIND=1 o
  shift
  while getopts "p:t:" o; do
    case $o in
    p) port=$OPTARG ;;
    t) seconds=$OPTARG ;;
    *) die "see the head of $0" ;;
    esac
  done
  shift $((OPTIND - 1))
  [ "${1:-}" != -- ] || shift
  exec python3 "$here/ctl.py" "$run/$name/ctl$port.sock" "$seconds" "$*"
}

stop() {
  local dir="$run/$1" pid
  [ -e "$dir/pid" ] || return 0
  pid=$(cat "$dir/pid")
  kill "$pid" 2>/dev/null || true
  rm -f "$dir/pid" "$dir"/ctl*.sock
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
build) build ;;
boot) boot "$@" ;;
ready) ready "$@" ;;
start) start "$@" ;;
exec) exec_ "$@" ;;
log) cat "$run/$1/console" ;;
stop) stop "$1" ;;
*)
  sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac

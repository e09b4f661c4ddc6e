#!/usr/bin/env bash
# Builds the guest of rxe-peer.sh: a Debian kernel with rdma_rxe and a small root file system with
# rdma-core, perftest and vprobe. Everything comes from Debian packages, downloaded and unpacked in
# OUTDIR/build; nothing is installed.
#
#   build-guest.sh OUTDIR      writes OUTDIR/{vmlinuz,vmlinux,initramfs.img,kernel-version}
#   build-guest.sh --kernel    prints the kernel package it would use; nothing if apt has none
#
# KPKG selects another kernel package than the one linux-image-amd64 depends on. KEEP_BUILD=1 keeps
# the half gigabyte of OUTDIR/build.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/sbin:/usr/sbin

die() {
  echo "build-guest: $*" >&2
  exit 1
}

kernel_package() {
  if [ -n "${KPKG:-}" ]; then
    echo "$KPKG"
    return
  fi
  command -v apt-cache >/dev/null || return 0
  { apt-cache depends linux-image-amd64 2>/dev/null || true; } |
    sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -1
}

# Package lists may be absent (a fresh container) or older than the archive.
refresh() {
  [ "$(id -u)" -eq 0 ] || return 1
  apt-get update -q >&2
}

if [ "${1:-}" = --kernel ]; then
  kernel_package
  exit
fi

OUT=${1:?usage: build-guest.sh OUTDIR}
command -v apt-get >/dev/null || die "the guest is made of Debian packages, and here is no apt-get"
missing=()
for pair in cpio:cpio depmod:kmod cc:gcc readelf:binutils python3:python3 dpkg:dpkg; do
  command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
done
[ ${#missing[@]} -eq 0 ] || die "missing here: apt-get install ${missing[*]}"
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
W=$OUT/build
mkdir -p "$W/debs" "$W/user" "$W/kroot"

KPKG=$(kernel_package)
if [ -z "$KPKG" ]; then
  refresh || die "apt-get update failed or is not allowed; the package lists are needed"
  KPKG=$(kernel_package)
fi
[ -n "$KPKG" ] || die "apt knows no linux-image-amd64: this needs Debian's package sources"

# The guest's programs, and every library they load.
PK="busybox-static dash perftest libibverbs-dev ibverbs-utils ibverbs-providers libibverbs1
    librdmacm1 rdmacm-utils libibumad3 libpci3 libnl-3-200 libnl-route-3-200 libc6 iproute2 libbpf1
    libelf1 libmnl0 libbsd0 libmd0 libcap2 libdb5.3 libxtables12 libtirpc3 libselinux1
    libpcre2-8-0 zlib1g libudev1 libgssapi-krb5-2 libkrb5-3 libk5crypto3 libcom-err2 libkrb5support0
    libkeyutils1 libssl3 libgcc-s1"
download() {
  ls "$W/debs/$1"_*.deb >/dev/null 2>&1 && return
  (cd "$W/debs" && apt-get download -q -o APT::Sandbox::User=root "$1") >"$W/apt.log" 2>&1
}
for p in $KPKG $PK; do
  download "$p" || { refresh && download "$p"; } || {
    tail -5 "$W/apt.log" >&2
    die "cannot download the Debian package $p (is there network?)"
  }
done
cd "$W/debs"
[ -d "$W/kroot/lib/modules" ] || [ -d "$W/kroot/usr/lib/modules" ] || dpkg -x ${KPKG}_*.deb "$W/kroot"
[ -d "$W/kroot/lib/modules" ] || ln -sfn usr/lib "$W/kroot/lib"
for p in $PK; do dpkg -x ${p}_*.deb "$W/user"; done

KV=$(ls "$W/kroot/lib/modules"); KM=$W/kroot/lib/modules/$KV
grep -q '^CONFIG_RDMA_RXE=m' "$W/kroot/boot/config-$KV" || die "kernel $KV has no rdma_rxe"
depmod -b "$W/kroot" "$KV"

# --- image tree
I=$W/image; rm -rf "$I"; mkdir -p "$I"/{bin,sbin,usr/bin,usr/sbin,proc,sys,dev,run,tmp,etc,lib64,root} "$I/lib/modules/$KV"
cp "$W/user/bin/busybox" "$I/bin/busybox"
R=$W/user
# programs
progs=()
for b in ib_send_bw ib_write_bw ib_read_bw ib_atomic_bw ib_send_lat ib_write_lat ib_read_lat ib_atomic_lat raw_ethernet_bw \
         ibv_rc_pingpong ibv_ud_pingpong ibv_uc_pingpong ibv_srq_pingpong ibv_xsrq_pingpong ibv_devinfo ibv_devices ibv_asyncwatch \
         rping ucmatose udaddy rdma_client rdma_server rdma_xserver rdma_xclient rstream rcopy ip rdma ss tc bridge dash; do
  f=$(find "$R/bin" "$R/sbin" "$R/usr/bin" "$R/usr/sbin" -name "$b" \( -type f -o -type l \) 2>/dev/null | head -1) || true
  [ -n "$f" ] || { echo "note: no $b" >&2; continue; }
  cp -L "$f" "$I/usr/bin/$b"; progs+=("$I/usr/bin/$b")
done
# vprobe, our own scripted verbs program, against the guest's libibverbs.
cc -O2 -Wall -I "$R/usr/include" -o "$I/usr/bin/vprobe" "$HERE/vprobe.c" \
  "$R"/usr/lib/x86_64-linux-gnu/libibverbs.so.1 -Wl,--unresolved-symbols=ignore-in-shared-libs
progs+=("$I/usr/bin/vprobe")
# libraries: closure over DT_NEEDED, looked up in the unpacked packages only
L=usr/lib/x86_64-linux-gnu
mkdir -p "$I/$L/libibverbs" "$I/lib/x86_64-linux-gnu" "$I/etc/libibverbs.d"
cp -L "$R/$L"/libibverbs/librxe-rdmav*.so "$I/$L/libibverbs/"
cp "$R/etc/libibverbs.d/rxe.driver" "$I/etc/libibverbs.d/"
cp -L "$R"/lib64/ld-linux-x86-64.so.2 "$I/lib64/" 2>/dev/null || cp -L "$R"/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 "$I/lib64/"
python3 - "$R" "$I" "${progs[@]}" "$I/$L"/libibverbs/*.so <<'PY'
import os, re, shutil, subprocess, sys
R, I, *files = sys.argv[1:]
dirs = [R + "/lib/x86_64-linux-gnu", R + "/usr/lib/x86_64-linux-gnu"]
seen, q = set(), list(files)
while q:
    f = q.pop()
    out = subprocess.run(["readelf", "-d", f], capture_output=True, text=True).stdout
    for n in re.findall(r"\(NEEDED\).*\[(.*?)\]", out):
        if n in seen or n.startswith("ld-linux"): continue
        seen.add(n)
        for d in dirs:
            if os.path.exists(f"{d}/{n}"):
                dst = f"{I}/lib/x86_64-linux-gnu/{n}"
                shutil.copy(os.path.realpath(f"{d}/{n}"), dst); q.append(dst); break
        else: print("note: library not found:", n, "for", f, file=sys.stderr)
PY
cp -L "$R/lib/x86_64-linux-gnu/libgcc_s.so.1" "$I/lib/x86_64-linux-gnu/"   # dlopened by pthread_exit
# modules: closure
python3 - "$KM" "$I/lib/modules/$KV" virtio_net virtio_pci virtio_console virtio_rng qemu_fw_cfg af_packet crc32_generic crc32-pclmul \
         ib_uverbs rdma_ucm rdma_rxe rdma_cm ib_ipoib <<'PY'
import lzma, os, shutil, sys
km, out, *want = sys.argv[1:]
dep, name = {}, {}
for l in open(km + "/modules.dep"):
    m, d = l.split(":"); dep[m] = d.split(); name[os.path.basename(m).split(".")[0].replace("-", "_")] = m
todo = [name[w.replace("-", "_")] for w in want if w.replace("-", "_") in name]
seen = set()
while todo:
    m = todo.pop()
    if m in seen: continue
    seen.add(m); todo += dep[m]
    os.makedirs(os.path.dirname(f"{out}/{m}"), exist_ok=True)
    if m.endswith(".xz"): open(f"{out}/{m[:-3]}", "wb").write(lzma.open(f"{km}/{m}").read())   # newer kernels' modules are packed
    else: shutil.copy(f"{km}/{m}", f"{out}/{m}")
for f in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
    if os.path.exists(f"{km}/{f}"): shutil.copy(f"{km}/{f}", out)
print("modules:", " ".join(sorted(os.path.basename(m).split(".")[0] for m in seen)))
PY
depmod -b "$I" "$KV"
cp "$HERE/guest-init" "$I/init"; cp "$HERE/guest-agent" "$I/sbin/agent"; chmod +x "$I/init" "$I/sbin/agent"
echo 'root:x:0:0:root:/root:/bin/sh' > "$I/etc/passwd"; echo '127.0.0.1 localhost' > "$I/etc/hosts"
echo 'passwd: files
hosts: files' > "$I/etc/nsswitch.conf"
( cd "$I" && find . | LC_ALL=C sort | cpio -o -H newc --quiet -R 0:0 > "$OUT/initramfs.img" )      # not compressed: unpacking costs seconds under TCG
cp "$W/kroot/boot/vmlinuz-$KV" "$OUT/vmlinuz"
# the bare ELF kernel, which QEMU starts by its PVH entry: saves some 4 s of decompression under TCG
python3 - "$OUT/vmlinuz" "$OUT/vmlinux" <<'PY'
import lzma, os, shutil, subprocess, sys
d = open(sys.argv[1], "rb").read(); out = b""
i = d.find(b"\xfd7zXZ\0"); j = d.find(b"\x28\xb5\x2f\xfd")
try:
    if i >= 0: out = lzma.LZMADecompressor().decompress(d[i:])
    elif j >= 0 and shutil.which("zstd"): out = subprocess.run(["zstd", "-dc"], input=d[j:], capture_output=True).stdout
except Exception as e: print("note: kernel not unpacked:", e, file=sys.stderr)
if out[:4] == b"\x7fELF": open(sys.argv[2], "wb").write(out)
elif os.path.exists(sys.argv[2]): os.unlink(sys.argv[2])
PY
[ -n "${KEEP_BUILD:-}" ] || rm -rf "$W"      # half a gigabyte; KEEP_BUILD=1 keeps it (and makes the next build quick)
echo "$KV" > "$OUT/kernel-version"
ls -l "$OUT"/vmlinu* "$OUT/initramfs.img"

//! AF_XDP sockets over libc and raw bpf(2): UMEM, rings, binding, steering

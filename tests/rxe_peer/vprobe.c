/* vprobe: a small scripted libibverbs program, for the verbs that perftest cannot show (immediate
 * data, atomics' values, RNR, bad rkeys, one exact message at a time) and for comparing data. Both
 * sides take a list of operations and run it in order.
 *
 *   vprobe [OPTIONS] [-c HOST] OP...       without -c: the listening side
 *
 *   -d DEVICE  -g GID INDEX  -P TCP PORT  -x RC|UC|UD  -m PATH MTU  -p FIRST PSN (default random)
 *   -t TIMEOUT  -r RETRIES  -n RNR RETRIES  -R MIN RNR TIMER  -q READS AND ATOMICS OUTSTANDING
 *   -L TRAFFIC CLASS  -H HOP LIMIT  -f FLOW LABEL  -B BUFFER BYTES
 *
 * Its buffer has two halves: the peer's SENDs and WRITEs go into the first, its own come from the
 * second, which is also what the peer READs, and where its own READs and atomics' values land.
 *
 *   recv:LEN[:N]                           post N receive requests
 *   send:LEN[:N]  sendimm:LEN[:N]  sendse:LEN[:N] (solicited event)
 *   write:LEN[:N]  writeimm:LEN[:N]  read:LEN[:N]  faa:ADD[:N]  cas:COMPARE:SWAP
 *   badkey:LEN  badkeyread:LEN  badkeyatomic  badaddr:LEN  unaligned (an atomic at +4)
 *       post N signalled requests back to back, then wait for as many completions; with "nb:" in
 *       front they are not waited for
 *   poll:N[:MS]                            wait for N completions, sent or received
 *   clear                                  zero the first half
 *   fill:SEED                              other bytes in the second half
 *   dump:LEN[:OFFSET]                      print the hash of bytes of the first half, and some
 *   sleep:MS
 *   bar                                    wait until the peer is at a barrier as well
 *
 * The exchange over TCP is a line each way, "VP qpn psn gid rkey vaddr length qkey", and "BAR".
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static struct ibv_ah *ah;
static char *buf;
static size_t blen = 1 << 20, half;
static FILE *tf;
static int tfd;
static struct {
  uint32_t qpn, psn, rkey, qkey;
  uint64_t va, len;
  union ibv_gid gid;
} me, peer;
static uint64_t wrid = 1;
static enum ibv_qp_type qt = IBV_QPT_RC;
#define DIE(...)                                                                                   \
  do {                                                                                             \
    fprintf(stderr, "vprobe: " __VA_ARGS__);                                                       \
    fprintf(stderr, " (%s)\n", strerror(errno));                                                   \
    exit(3);                                                                                       \
  } while (0)
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
static double t0;

static int poll1(int ms) {
  double end = now() + ms / 1e3;
  struct ibv_wc wc;
  for (;;) {
    int n = ibv_poll_cq(cq, 1, &wc);
    if (n < 0) DIE("poll_cq");
    if (n) {
      printf("wc id=%llu %s status=%d (%s)", (unsigned long long)wc.wr_id,
             wc.wr_id >> 32 ? "RECV" : "SEND", wc.status, ibv_wc_status_str(wc.status));
      if (!wc.status) printf(" opcode=%d len=%u", wc.opcode, wc.byte_len);
      if (!wc.status && wc.wc_flags & IBV_WC_WITH_IMM) printf(" imm=0x%08x", ntohl(wc.imm_data));
      if (!wc.status && qt == IBV_QPT_UD && wc.wr_id >> 32)
        printf(" src_qp=0x%x grh=%d", wc.src_qp, !!(wc.wc_flags & IBV_WC_GRH));
      if (wc.status) printf(" vendor_err=0x%x", wc.vendor_err);
      printf(" t=%.3f\n", now() - t0);
      fflush(stdout);
      return 1;
    }
    if (now() > end) return 0;
    usleep(500);
  }
}
static void barrier(void) {
  char l[64];
  fprintf(tf, "BAR\n");
  fflush(tf);
  if (!fgets(l, sizeof l, tf)) DIE("peer went away at a barrier");
}
/* No two stretches of the bytes are alike, so that a packet in a wrong place changes the hash. */
static void fill(uint64_t seed) {
  uint64_t x = seed;
  for (size_t i = 0; i < blen - half; i++) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    buf[half + i] = (char)(x >> 56);
  }
}
static uint64_t fnv(const char *at, long len) {
  uint64_t h = 1469598103934665603ull;
  for (long k = 0; k < len; k++)
    h = (h ^ (uint8_t)at[k]) * 1099511628211ull;
  return h;
}
static void post(const char *op, long len, long a, long b, int off) {
  struct ibv_sge sge = {(uintptr_t)buf + half + off, len, mr->lkey};
  struct ibv_send_wr wr = {.wr_id = wrid++,
                           .sg_list = &sge,
                           .num_sge = len ? 1 : 0,
                           .send_flags = IBV_SEND_SIGNALED},
                     *bad;
  uint64_t va = peer.va;
  uint32_t rkey = peer.rkey;
  wr.imm_data = htonl(0xabcd0000 + (uint32_t)wr.wr_id);
  if (!strncmp(op, "badkey", 6)) {
    rkey ^= 0x5a;
    op = op[6] == 'r' ? "read" : op[6] == 'a' ? "faa" : "write";
  }
  if (!strcmp(op, "badaddr")) {
    va = peer.va + peer.len - len / 2;
    op = "write";
  }
  if (!strcmp(op, "unaligned")) {
    va += 4;
    op = "faa";
  }
  if (!strcmp(op, "send"))
    wr.opcode = IBV_WR_SEND;
  else if (!strcmp(op, "sendse")) {
    wr.opcode = IBV_WR_SEND;
    wr.send_flags |= IBV_SEND_SOLICITED;
  } else if (!strcmp(op, "sendimm"))
    wr.opcode = IBV_WR_SEND_WITH_IMM;
  else if (!strcmp(op, "write"))
    wr.opcode = IBV_WR_RDMA_WRITE;
  else if (!strcmp(op, "writeimm"))
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  else if (!strcmp(op, "read"))
    wr.opcode = IBV_WR_RDMA_READ;
  else if (!strcmp(op, "faa") || !strcmp(op, "cas")) {
    wr.opcode = *op == 'f' ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
    sge.length = 8;
    wr.num_sge = 1;
    wr.wr.atomic.remote_addr = va;
    wr.wr.atomic.rkey = rkey;
    wr.wr.atomic.compare_add = a;
    wr.wr.atomic.swap = b;
  } else
    DIE("no such op %s", op);
  if (wr.opcode == IBV_WR_RDMA_WRITE || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
      wr.opcode == IBV_WR_RDMA_READ) {
    wr.wr.rdma.remote_addr = va + (!strcmp(op, "read") && rkey == peer.rkey
                                       ? peer.len / 2
                                       : 0); /* reads take the peer's pattern half */
    wr.wr.rdma.rkey = rkey;
  }
  if (qt == IBV_QPT_UD) {
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = peer.qpn;
    wr.wr.ud.remote_qkey = peer.qkey;
  }
  if ((errno = ibv_post_send(qp, &wr, &bad))) DIE("post_send %s", op);
}
int main(int argc, char **argv) {
  const char *dev = NULL, *host = NULL;
  int gi = 1, mtu = 1024, port = 18600, rnrt = 12, tmo = 14, retry = 7, rnrr = 7, rda = 16, tc = 0,
      hop = 64, flow = 0, o;
  long psn = -1;
  while ((o = getopt(argc, argv, "d:g:P:m:x:R:t:r:n:q:L:H:p:B:f:c:")) != -1)
    switch (o) {
    case 'd':
      dev = optarg;
      break;
    case 'g':
      gi = atoi(optarg);
      break;
    case 'P':
      port = atoi(optarg);
      break;
    case 'm':
      mtu = atoi(optarg);
      break;
    case 'x':
      qt = !strcmp(optarg, "UD") ? IBV_QPT_UD : !strcmp(optarg, "UC") ? IBV_QPT_UC : IBV_QPT_RC;
      break;
    case 'R':
      rnrt = atoi(optarg);
      break;
    case 't':
      tmo = atoi(optarg);
      break;
    case 'r':
      retry = atoi(optarg);
      break;
    case 'n':
      rnrr = atoi(optarg);
      break;
    case 'q':
      rda = atoi(optarg);
      break;
    case 'L':
      tc = atoi(optarg);
      break;
    case 'H':
      hop = atoi(optarg);
      break;
    case 'p':
      psn = strtol(optarg, 0, 0);
      break;
    case 'B':
      blen = strtoul(optarg, 0, 0);
      break;
    case 'f':
      flow = strtol(optarg, 0, 0);
      break;
    case 'c':
      host = optarg;
      break;
    default:
      return 2;
    }
  t0 = now();
  half = blen / 2;
  struct ibv_device **dl = ibv_get_device_list(NULL), *dv = NULL;
  if (!dl) DIE("get_device_list");
  for (int i = 0; dl[i]; i++)
    if (!dev || !strcmp(dev, ibv_get_device_name(dl[i]))) {
      dv = dl[i];
      break;
    }
  if (!dv || !(ctx = ibv_open_device(dv))) DIE("no RDMA device");
  if (!(pd = ibv_alloc_pd(ctx))) DIE("alloc_pd");
  buf = aligned_alloc(4096, blen);
  memset(buf, 0, half);
  fill(host ? 1 : 2);
  if (!(mr = ibv_reg_mr(pd, buf, blen,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                            IBV_ACCESS_REMOTE_ATOMIC)))
    DIE("reg_mr");
  if (!(cq = ibv_create_cq(ctx, 1024, NULL, NULL, 0))) DIE("create_cq");
  struct ibv_qp_init_attr ia = {
      .send_cq = cq, .recv_cq = cq, .cap = {256, 256, 1, 1, 0}, .qp_type = qt};
  if (!(qp = ibv_create_qp(pd, &ia))) DIE("create_qp");
  srand(getpid() * 2654435761u + (unsigned)(now() * 1e6));
  me.psn = psn >= 0 ? psn & 0xffffff : rand() & 0xffffff;
  me.qpn = qp->qp_num;
  me.rkey = mr->rkey;
  me.va = (uintptr_t)buf;
  me.len = blen;
  me.qkey = 0x11111111;
  if (ibv_query_gid(ctx, 1, gi, &me.gid)) DIE("query_gid");
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
                          .pkey_index = 0,
                          .port_num = 1,
                          .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                             IBV_ACCESS_REMOTE_ATOMIC,
                          .qkey = me.qkey};
  if ((errno = ibv_modify_qp(qp, &a,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                 (qt == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS))))
    DIE("INIT");
  /* out-of-band */
  char ps[16];
  snprintf(ps, sizeof ps, "%d", port);
  struct addrinfo hi = {.ai_socktype = SOCK_STREAM,
                        .ai_flags = host ? 0 : AI_PASSIVE,
                        .ai_family = host ? 0 : AF_INET6},
                  *ai;
  if (getaddrinfo(host, ps, &hi, &ai)) DIE("getaddrinfo");
  int s = socket(ai->ai_family, SOCK_STREAM, 0), one = 1;
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (host) {
    int k;
    for (k = 0; connect(s, ai->ai_addr, ai->ai_addrlen); k++) {
      if (k > 50) DIE("connect");
      close(s);
      usleep(100000);
      s = socket(ai->ai_family, SOCK_STREAM, 0);
    }
    tfd = s;
  } else {
    if (bind(s, ai->ai_addr, ai->ai_addrlen) || listen(s, 1)) DIE("listen");
    if ((tfd = accept(s, NULL, NULL)) < 0) DIE("accept");
    close(s);
  }
  setsockopt(tfd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  tf = fdopen(tfd, "r+");
  setvbuf(tf, NULL, _IONBF, 0);
  char g[64], line[256];
  inet_ntop(AF_INET6, &me.gid, g, sizeof g);
  char out[256];
  snprintf(out, sizeof out, "VP 0x%06x 0x%06x %s 0x%08x 0x%016llx %llu 0x%08x\n", me.qpn, me.psn, g,
           me.rkey, (unsigned long long)me.va, (unsigned long long)me.len, me.qkey);
  if (write(tfd, out, strlen(out)) < 0) DIE("write");
  printf("local  %s", out);
  if (!fgets(line, sizeof line, tf)) DIE("no line from the peer");
  printf("remote %s", line);
  unsigned long long va, len;
  if (sscanf(line, "VP %x %x %63s %x %llx %llu %x", &peer.qpn, &peer.psn, g, &peer.rkey, &va, &len,
             &peer.qkey) != 7)
    DIE("bad line");
  peer.va = va;
  peer.len = len;
  if (inet_pton(AF_INET6, g, &peer.gid) != 1) DIE("bad gid");
  struct ibv_ah_attr aha = {.is_global = 1,
                            .port_num = 1,
                            .grh = {.dgid = peer.gid,
                                    .sgid_index = gi,
                                    .hop_limit = hop,
                                    .traffic_class = tc,
                                    .flow_label = flow}};
  enum ibv_mtu pm = mtu == 256    ? IBV_MTU_256
                    : mtu == 512  ? IBV_MTU_512
                    : mtu == 1024 ? IBV_MTU_1024
                    : mtu == 2048 ? IBV_MTU_2048
                                  : IBV_MTU_4096;
  struct ibv_qp_attr r = {.qp_state = IBV_QPS_RTR,
                          .path_mtu = pm,
                          .dest_qp_num = peer.qpn,
                          .rq_psn = peer.psn,
                          .max_dest_rd_atomic = rda,
                          .min_rnr_timer = rnrt,
                          .ah_attr = aha};
  int m = IBV_QP_STATE;
  if (qt != IBV_QPT_UD) m |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (qt == IBV_QPT_RC) m |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if ((errno = ibv_modify_qp(qp, &r, m))) DIE("RTR");
  struct ibv_qp_attr t = {.qp_state = IBV_QPS_RTS,
                          .sq_psn = me.psn,
                          .timeout = tmo,
                          .retry_cnt = retry,
                          .rnr_retry = rnrr,
                          .max_rd_atomic = rda};
  m = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (qt == IBV_QPT_RC)
    m |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  if ((errno = ibv_modify_qp(qp, &t, m))) DIE("RTS");
  if (qt == IBV_QPT_UD && !(ah = ibv_create_ah(pd, &aha))) DIE("create_ah");
  barrier();
  t0 = now();
  for (int i = optind; i < argc; i++) {
    char w[64];
    snprintf(w, sizeof w, "%s", argv[i]);
    int nb = !strncmp(w, "nb:", 3);
    char *op = strtok(nb ? w + 3 : w, ":"), *x = strtok(NULL, ":"), *y = strtok(NULL, ":");
    long a1 = x ? (long)strtoull(x, 0, 0) : 0, n = y ? (long)strtoull(y, 0, 0) : 1;
    printf("op %s\n", argv[i]);
    if (!strcmp(op, "bar"))
      barrier();
    else if (!strcmp(op, "clear"))
      memset(buf, 0, half);
    else if (!strcmp(op, "fill"))
      fill(a1);
    else if (!strcmp(op, "sleep"))
      usleep(a1 * 1000);
    else if (!strcmp(op, "poll")) {
      for (long k = 0; k < a1; k++)
        if (!poll1(y ? n : 300000)) {
          printf("poll: timed out at %ld of %ld t=%.3f\n", k, a1, now() - t0);
          break;
        }
    } else if (!strcmp(op, "recv"))
      for (long k = 0; k < n; k++) {
        long l = a1 + (qt == IBV_QPT_UD ? 40 : 0);
        struct ibv_sge sge = {(uintptr_t)buf, l, mr->lkey};
        struct ibv_recv_wr wr = {.wr_id = wrid++ | 1ull << 32,
                                 .sg_list = &sge,
                                 .num_sge = l ? 1 : 0},
                           *bad;
        if ((errno = ibv_post_recv(qp, &wr, &bad))) DIE("post_recv");
      }
    else if (!strcmp(op, "dump")) {
      printf("dump %ld fnv=%016llx:", a1, (unsigned long long)fnv(buf + (y ? n : 0), a1));
      for (long k = 0; k < a1 && k < 48; k++)
        printf(" %02x", (uint8_t)buf[k + (y ? n : 0)]);
      printf("\n");
    } else {
      int atomic = !strcmp(op, "faa") || !strcmp(op, "cas") || !strcmp(op, "badkeyatomic") ||
                   !strcmp(op, "unaligned");
      long cnt = !strcmp(op, "cas") ? 1 : n;
      for (long k = 0; k < cnt; k++)
        post(op, atomic ? 8 : a1, a1, n, atomic ? 8 * k : 0);
      if (!nb)
        for (long k = 0; k < cnt; k++) {
          if (!poll1(300000)) {
            printf("no completion for %s\n", argv[i]);
            break;
          }
          if (atomic)
            printf("atomic original=0x%llx\n", *(unsigned long long *)(buf + half + 8 * k));
        }
      if (!nb && !strcmp(op, "read"))
        printf("read fnv=%016llx\n", (unsigned long long)fnv(buf + half, a1));
    }
    fflush(stdout);
  }
  struct ibv_qp_attr qa;
  struct ibv_qp_init_attr qi;
  if (!ibv_query_qp(qp, &qa, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN, &qi))
    printf("end qp_state=%d\n", qa.qp_state);
  barrier();
  return 0;
}

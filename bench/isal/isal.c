// ISA-L's erasure coding, timed: requests on stdin, nanoseconds on stdout, a line each.
//
//   CODE X Y LEN MS      CODE is one of: encode  decode  plan-decode  pq
//
// encode: Y parity packets of X data packets of LEN bytes. decode: the first Y data packets from
// the rest and all parity, with prepared tables; plan-decode: tables made each time. pq: pq_gen, Y is 2.
// The reply is the median over runs of 1/16 of the time, without time that other programs took of
// the core. Compiled and driven by `spanwire-bench erasure`.

#include <isa-l/erasure_code.h>
#include <isa-l/raid.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PACKETS_MAX = 256, PARITY_MAX = 32 };

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

// Time for which this thread was runnable without a core.
static double waited_ns(void)
{
    unsigned long long on_cpu = 0, waited = 0;
    FILE *stat = fopen("/proc/thread-self/schedstat", "r");
    if (!stat || fscanf(stat, "%llu %llu", &on_cpu, &waited) != 2) {
        fputs("no scheduler statistics\n", stderr);
        exit(1);
    }
    fclose(stat);
    return (double)waited;
}

struct block {
    int x, y, len;
    unsigned char *packets[PACKETS_MAX]; // data, then parity
    unsigned char *out[PARITY_MAX];
    unsigned char matrix[PACKETS_MAX * PACKETS_MAX];
    unsigned char tables[32 * PACKETS_MAX * PARITY_MAX];
};

// The rows that decode the first y data packets from packets y..y + x, and their tables.
static void plan(struct block *b)
{
    static unsigned char there[PACKETS_MAX * PACKETS_MAX], inverse[PACKETS_MAX * PACKETS_MAX];
    memcpy(there, b->matrix + b->y * b->x, (size_t)(b->x * b->x));
    if (gf_invert_matrix(there, inverse, b->x)) {
        fputs("a singular matrix\n", stderr);
        exit(1);
    }
    ec_init_tables(b->x, b->y, inverse, b->tables);
}

static void run(struct block *b, const char *code, long times)
{
    for (long i = 0; i < times; i++) {
        if (code[0] == 'e') {
            ec_encode_data(b->len, b->x, b->y, b->tables, b->packets, b->packets + b->x);
        } else if (!strcmp(code, "pq")) {
            if (pq_gen(b->x + 2, b->len, (void **)b->packets))
                exit(1);
        } else {
            if (code[0] == 'p')
                plan(b);
            ec_encode_data(b->len, b->x, b->y, b->tables, b->packets + b->y, b->out);
        }
    }
}

static int ascending(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static double median_ns(struct block *b, const char *code, double ms)
{
    enum { RUNS = 16 };
    double each[RUNS];
    long times = 16;
    for (;;) {
        double start = now_ns();
        run(b, code, times);
        double elapsed = now_ns() - start;
        if (elapsed > ms * 1e6 / RUNS / 2) {
            double wanted = (double)times * ms * 1e6 / RUNS / elapsed;
            times = wanted < 1 ? 1 : (long)wanted;
            break;
        }
        times *= 2;
    }
    for (int i = 0; i < RUNS; i++) {
        double waited = waited_ns(), start = now_ns();
        run(b, code, times);
        each[i] = (now_ns() - start - (waited_ns() - waited)) / (double)times;
    }
    qsort(each, RUNS, sizeof each[0], ascending);
    return (each[RUNS / 2 - 1] + each[RUNS / 2]) / 2;
}

static void prepare(struct block *b, unsigned char *memory)
{
    int n = b->x + b->y, stride = (b->len + 63) / 64 * 64;
    for (int i = 0; i < n + b->y; i++) {
        unsigned char *packet = memory + (size_t)i * (size_t)stride;
        if (i < n)
            b->packets[i] = packet;
        else
            b->out[i - n] = packet;
        for (int k = 0; k < b->len; k++)
            packet[k] = (unsigned char)(i * 31 + k * 7 + k / 256);
    }
    gf_gen_cauchy1_matrix(b->matrix, n, b->x);
    ec_init_tables(b->x, b->y, b->matrix + b->x * b->x, b->tables);
}

// The decoded packets must equal the encoded ones: a wrong result is not timed.
static void verify(struct block *b)
{
    run(b, "encode", 1);
    run(b, "plan-decode", 1);
    for (int i = 0; i < b->y; i++) {
        if (memcmp(b->out[i], b->packets[i], (size_t)b->len)) {
            fputs("decoded something else\n", stderr);
            exit(1);
        }
    }
}

int main(void)
{
    static struct block block;
    char code[16];
    double ms;
    while (scanf("%15s %d %d %d %lf", code, &block.x, &block.y, &block.len, &ms) == 5) {
        int x = block.x, y = block.y;
        if (x < 1 || y < 1 || x < y || y > PARITY_MAX || x + y > PACKETS_MAX || block.len < 64 ||
            block.len > 1 << 20 || !(ms > 0)) {
            fputs("a request out of range\n", stderr);
            return 1;
        }
        size_t bytes = (size_t)(x + 2 * y) * (size_t)((block.len + 63) / 64 * 64);
        unsigned char *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        if (!memory)
            return 1;
        prepare(&block, memory);
        verify(&block);
        if (!strcmp(code, "decode"))
            plan(&block);
        else
            ec_init_tables(x, y, block.matrix + x * x, block.tables);
        printf("%.3f\n", median_ns(&block, code, ms));
        fflush(stdout);
        free(memory);
    }
    return 0;
}

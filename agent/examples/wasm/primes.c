/* Counts the primes of one range, and saves what it has counted now and then.
 *
 *     clang --target=wasm32-wasi -O2 -o primes.wasm primes.c
 *     gleaner submit wasm primes.wasm --count 100 -- {index} 1000000
 *
 * The first argument is the number of the range, the second its length. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gleaner.h"

struct state {
    uint64_t next;
    uint64_t count;
};

static int is_prime(uint64_t number) {
    if (number < 2) return 0;
    for (uint64_t divisor = 2; divisor * divisor <= number; divisor++)
        if (number % divisor == 0) return 0;
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: primes RANGE LENGTH\n");
        return 2;
    }
    uint64_t length = strtoull(argv[2], NULL, 10);
    uint64_t from = strtoull(argv[1], NULL, 10) * length;
    struct state state = {from, 0};
    if (gleaner_checkpoint_size() == sizeof state) gleaner_checkpoint_load(&state, sizeof state);
    for (; state.next < from + length; state.next++) {
        if (state.next % 4096 == 0) {
            gleaner_checkpoint_save(&state, sizeof state);
            gleaner_progress((uint32_t)((state.next - from) * 1000 / length));
        }
        state.count += is_prime(state.next);
    }
    printf("%llu\n", (unsigned long long)state.count);
    return 0;
}

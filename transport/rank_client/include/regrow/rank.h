/* What a rank tells its regrow agent, and learns from it. C ABI of libregrow_rank.
 *
 *   #include <regrow/rank.h>
 *   // cc train.c $(pkg-config --cflags --libs regrow_rank)
 *
 *   struct regrow_info info = REGROW_INFO_INIT;
 *   regrow_init(&info);
 *   for (long n = info.resume_step + 1; n < steps; ++n) { train(n, &loss); regrow_step(n, loss); }
 *   regrow_finish(5000);
 *
 * Without a supervisor (plain, or under torchrun or mpirun) every call succeeds and sends nothing.
 * Any thread; no thread of its own. After fork() the child is silent until it calls regrow_init()
 * itself. Not for signal handlers. docs/rank-api.md has all of it, the protocol included.
 */
#ifndef REGROW_RANK_H
#define REGROW_RANK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REGROW_API __attribute__((visibility("default")))

/* Grows only at its end: the caller's size says how much of it the caller knows. */
struct regrow_info {
  uint64_t size;           /* sizeof(struct regrow_info), set by the caller */
  int32_t supervised;      /* 1 if an agent takes the reports of this rank */
  uint32_t rank;           /* 0 if nobody says */
  uint32_t world_size;     /* 1 if nobody says */
  uint32_t local_rank;     /* among the ranks of this job on this host */
  uint64_t job;            /* 0 if not under regrow */
  uint64_t generation;     /* of the job's membership; rises with each recovery */
  uint32_t incarnation;    /* which start of this rank this is; 0 if not under regrow */
  uint32_t restart_count;  /* recoveries of the job so far */
  int64_t resume_step;     /* -1 = from the beginning */
  const char *resume_path; /* the checkpoint to resume from; "" = none. Valid until the next init */
  const char *checkpoint_directory; /* where the job keeps its checkpoints; "" = none is known */
};
#define REGROW_INFO_INIT \
  { sizeof(struct regrow_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Reads who this rank is and, under regrow, connects to its agent. `info` may be null. Waits for
 * nobody. Returns 1 if supervised, 0 if not, -EINVAL if info->size is none that ever was. */
REGROW_API int regrow_init(struct regrow_info *info);

/* Step n is done. `loss` may be NAN. Never waits: what the agent cannot take now is replaced by the
 * next step and sent with it. An agent that was restarted is found again, at most one attempt in
 * 100 ms. Calls regrow_init() if nobody has. Returns 0, or -EINVAL for a negative step. */
REGROW_API int regrow_step(int64_t step, double loss);

/* The job's generation, as last heard. */
REGROW_API uint64_t regrow_generation(void);

/* The rank is about to leave on purpose. Waits until the agent has taken that, and the newest step
 * with it, at most `timeout_ms`. Returns 1 if it has, 0 if not or if there is no agent. */
REGROW_API int regrow_finish(int timeout_ms);

#ifdef __cplusplus
}
#endif
#endif

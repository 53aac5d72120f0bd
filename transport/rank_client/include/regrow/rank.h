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
 * Any thread; no thread of its own but for regrow_on_regroup(). After fork() the child is silent
 * until it calls regrow_init() itself. Not for signal handlers. docs/rank-api.md has all of it, the
 * protocol included.
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

/* A fault took other ranks, and a new generation is being formed: called once for each, from the
 * library's one thread, which this starts. It is the place to break off what waits for the lost
 * ranks; the next thing that this rank has to do is regrow_rejoin(). */
typedef void (*regrow_regroup_fn)(uint64_t generation, void *argument);

/* Null takes it back, and waits until a call that is under way has returned; so not from within the
 * call. Returns 1 if supervised, 0 if not (then there is no thread), or -errno. */
REGROW_API int regrow_on_regroup(regrow_regroup_fn call, void *argument);

/* Who belongs together, and from where it goes on. Grows only at its end. */
struct regrow_membership {
  uint64_t size; /* sizeof(struct regrow_membership), set by the caller */
  uint64_t generation;
  uint32_t rank;
  uint32_t world_size;
  int32_t source;             /* the rank whose state all take over; -1 = from a checkpoint */
  uint32_t master_port;       /* of the store where the generation meets; 0 = not known */
  int64_t source_step;        /* newest step of that state */
  int64_t resume_step;        /* without a source; -1 = from the beginning */
  const char *master_address; /* "" = not known. Valid until the next call, as resume_path is */
  const char *resume_path;    /* without a source; "" = none */
};
#define REGROW_MEMBERSHIP_INIT \
  { sizeof(struct regrow_membership), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* "I have left the old generation and am ready for the new one." `step` is the newest that this
 * rank's state has, -1 = none; `intact` says that the state is whole, so that others may take it
 * over. Waits until every rank has said so, at most `timeout_ms` (-1 = as long as it takes), also
 * while the agent is away. If another rank is lost meanwhile it is the next generation that is
 * joined. Returns 1 and fills `out`, 0 if the time is over, -EINVAL for an unknown out->size.
 * Without a supervisor, and where no new generation is being formed, returns at once what the
 * environment says. */
REGROW_API int regrow_rejoin(int64_t step, int intact, struct regrow_membership *out,
                             int timeout_ms);

/* This rank's part of the checkpoint of `step` is written and synced. Never waits. Returns 0, or
 * -EINVAL for a negative step or a path that is empty or longer than 4095 bytes. */
REGROW_API int regrow_checkpoint_saved(int64_t step, const char *path);

#ifdef __cplusplus
}
#endif
#endif

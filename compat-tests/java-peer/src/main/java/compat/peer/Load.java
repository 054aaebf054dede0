package compat.peer;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import com.google.gson.JsonObject;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RedissonClient;

/**
 * Closed loops of one call for a given time. A loop is a chain of completions,
 * not a thread: the next call starts on the thread that completed the last one.
 */
final class Load extends CompletableFuture<JsonObject> {
    private static final long MAX_TASKS = 1_000_000;

    private final Attempt attempt;
    private final Tally tally = new Tally();
    private final long end;
    private final AtomicInteger open;

    /** One call of a loop, or null if its time is over. */
    private interface Attempt {
        CompletionStage<Boolean> start(RRateLimiter limiter, long remainingNanos);
    }

    /** The call that never waits. */
    static Load ofTrying(RedissonClient client, Call call) {
        if (call.has("lease") || call.has("denialMemoryMs")) {
            throw new Releases.NotInThisRelease();
        }
        long permits = call.number("permits");
        int limiters = (int) call.number("limiters", 1, 1, MAX_TASKS);
        return new Load(client, call, limiters, (limiter, remaining) -> limiter.tryAcquireAsync(permits));
    }

    /** The waiting call, with the remaining time as its timeout. */
    static Load ofWaiting(RedissonClient client, Call call) {
        long permits = call.number("permits");
        return new Load(client, call, 1, (limiter, remaining) -> {
            long ms = TimeUnit.NANOSECONDS.toMillis(remaining);
            return ms == 0 ? null : limiter.tryAcquireAsync(permits, ms, TimeUnit.MILLISECONDS);
        });
    }

    private Load(RedissonClient client, Call call, int limiters, Attempt attempt) {
        String name = call.text("name");
        int tasks = (int) call.number("tasks", -1, 1, MAX_TASKS);
        long ms = call.number("ms", -1, 1, Integer.MAX_VALUE);
        this.attempt = attempt;
        this.end = tally.start() + ms * 1_000_000;
        this.open = new AtomicInteger(tasks);

        RRateLimiter[] each = new RRateLimiter[limiters];
        for (int i = 0; i < limiters; i++) {
            each[i] = client.getRateLimiter(limiters == 1 ? name : name + i);
        }
        for (int task = 0; task < tasks; task++) {
            new Loop(each[task % limiters]).proceed();
        }
    }

    private final class Loop {
        private final RRateLimiter limiter;
        /** How many attempts are due. The thread that raises it from 0 makes them; otherwise calls that complete at once would recurse. */
        private final AtomicInteger due = new AtomicInteger();

        Loop(RRateLimiter limiter) {
            this.limiter = limiter;
        }

        void proceed() {
            if (due.getAndIncrement() == 0) {
                do {
                    attempt();
                } while (due.decrementAndGet() != 0);
            }
        }

        private void attempt() {
            long from = System.nanoTime();
            CompletionStage<Boolean> stage = null;
            // Done early only if the whole load was cancelled.
            if (from < end && !isDone()) {
                try {
                    stage = attempt.start(limiter, end - from);
                } catch (RuntimeException e) {
                    stage = CompletableFuture.failedFuture(e);
                }
            }
            if (stage == null) {
                close();
                return;
            }
            stage.whenComplete((answer, error) -> {
                tally.count(from, answer, error);
                proceed();
            });
        }

        private void close() {
            if (open.decrementAndGet() == 0) {
                complete(tally.report());
            }
        }
    }
}

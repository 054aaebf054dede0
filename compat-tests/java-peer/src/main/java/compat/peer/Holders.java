package compat.peer;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.function.LongFunction;

import com.google.gson.JsonObject;

/**
 * Closed loops that each take one permit of a semaphore, waiting with the remaining time as the timeout, hold it,
 * and give it back. The latencies are those of taking.
 */
final class Holders extends CompletableFuture<JsonObject> {
    private static final long LATE_MS = 2000;

    private final LongFunction<CompletionStage<String>> take;
    private final Function<String, CompletionStage<?>> giveBack;
    private final Executor hold;
    private final Tally tally = new Tally();
    private final long end;
    private final AtomicInteger open;

    /** {@code take} gets the longest wait in ms, and answers with a permit, or null. */
    Holders(Call call, LongFunction<CompletionStage<String>> take, Function<String, CompletionStage<?>> giveBack) {
        this.take = take;
        this.giveBack = giveBack;
        int tasks = (int) call.number("tasks", -1, 1, 1_000_000);
        long holdMs = call.number("holdMs", 0, 0, Integer.MAX_VALUE);
        this.hold = holdMs == 0 ? Runnable::run : delayedExecutor(holdMs, TimeUnit.MILLISECONDS);
        this.end = tally.start() + call.number("ms", -1, 1, Integer.MAX_VALUE) * 1_000_000;
        this.open = new AtomicInteger(tasks);
        for (int task = 0; task < tasks; task++) {
            proceed();
        }
    }

    private void proceed() {
        long from = System.nanoTime();
        long ms = TimeUnit.NANOSECONDS.toMillis(end - from);
        // Done early only if it was cancelled.
        if (ms <= 0 || isDone()) {
            if (open.decrementAndGet() == 0) {
                complete(tally.report());
            }
            return;
        }
        // Redisson leaves some waits unanswered; their time is over all the same.
        CompletableFuture<String> taken = take.apply(ms).toCompletableFuture().copy();
        taken.completeOnTimeout(null, ms + LATE_MS, TimeUnit.MILLISECONDS).whenComplete((permit, error) -> {
            tally.count(from, permit != null, error);
            if (permit == null) {
                proceed();
            } else {
                hold.execute(() -> giveBack.apply(permit).whenComplete((done, failure) -> proceed()));
            }
        });
    }
}

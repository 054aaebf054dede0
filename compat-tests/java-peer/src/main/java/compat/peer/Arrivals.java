package compat.peer;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

import com.google.gson.JsonObject;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RedissonClient;

/**
 * Callers that arrive at random, whether or not earlier ones are still waiting: the times between two arrivals
 * are distributed exponentially. Each makes one waiting call.
 */
final class Arrivals extends CompletableFuture<JsonObject> {
    private final Tally tally = new Tally();
    private final RRateLimiter limiter;
    private final long permits;
    private final long timeoutMs;
    private final double perSecond;
    private final long nanos;
    /** The calls without an answer, and one while further callers arrive. */
    private final AtomicInteger open = new AtomicInteger(1);

    Arrivals(RedissonClient client, Call call) {
        limiter = client.getRateLimiter(call.text("name"));
        permits = call.number("permits");
        timeoutMs = call.number("timeoutMs", -1, 0, Long.MAX_VALUE);
        perSecond = call.decimal("perSecond");
        if (!(perSecond > 0 && perSecond <= 1e6)) {
            throw new IllegalArgumentException("perSecond: not above 0 and at most 1000000");
        }
        nanos = call.number("ms", -1, 1, Integer.MAX_VALUE) * 1_000_000;
        Thread arriving = new Thread(this::arrive, "arrivals");
        arriving.setDaemon(true);
        arriving.start();
    }

    private void arrive() {
        double after = 0;
        // Done early only if it was cancelled.
        while (!isDone()) {
            // From 0 to 1, and never 0.
            double random = 1 - ThreadLocalRandom.current().nextDouble();
            after -= Math.log(random) / perSecond * 1e9;
            if (after >= nanos) {
                break;
            }
            long due = tally.start() + (long) after;
            for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
            begin();
        }
        close();
    }

    private void begin() {
        long from = System.nanoTime();
        open.incrementAndGet();
        CompletionStage<Boolean> stage;
        try {
            stage = limiter.tryAcquireAsync(permits, timeoutMs, TimeUnit.MILLISECONDS);
        } catch (RuntimeException e) {
            stage = CompletableFuture.failedFuture(e);
        }
        stage.whenComplete((answer, error) -> {
            tally.count(from, answer, error);
            close();
        });
    }

    private void close() {
        if (open.decrementAndGet() == 0) {
            complete(tally.report());
        }
    }
}

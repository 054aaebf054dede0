package compat.bucket4j;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAdder;

import com.google.gson.JsonObject;
import io.github.bucket4j.distributed.AsyncBucketProxy;
import org.HdrHistogram.ConcurrentHistogram;
import org.HdrHistogram.Histogram;

/**
 * Closed loops of the call that never waits. A loop is a chain of completions,
 * not a thread: the next call starts on the thread that completed the last one.
 */
final class Load {
    private final AsyncBucketProxy bucket;
    private final long permits;
    private final long start = System.nanoTime();
    private final long end;
    private final AtomicInteger open;
    private final LongAdder granted = new LongAdder();
    private final LongAdder denied = new LongAdder();
    private final LongAdder errors = new LongAdder();
    /** Nanoseconds, up to an hour, to three digits. */
    private final Histogram latencies = new ConcurrentHistogram(3_600_000_000_000L, 3);
    private final CompletableFuture<JsonObject> report = new CompletableFuture<>();

    static CompletableFuture<JsonObject> start(AsyncBucketProxy bucket, JsonObject call) {
        if (call.has("lease") || call.has("denialMemoryMs") || call.has("limiters")) {
            throw new IllegalArgumentException("lease, denialMemoryMs, limiters: not in this peer");
        }
        return new Load(bucket, call).report;
    }

    private Load(AsyncBucketProxy bucket, JsonObject call) {
        this.bucket = bucket;
        this.permits = call.get("permits").getAsLong();
        this.end = start + call.get("ms").getAsLong() * 1_000_000;
        int tasks = call.get("tasks").getAsInt();
        this.open = new AtomicInteger(tasks);
        for (int task = 0; task < tasks; task++) {
            new Loop().proceed();
        }
    }

    private final class Loop {
        /** How many attempts are due. The thread that raises it from 0 makes them; otherwise calls that complete at once would recurse. */
        private final AtomicInteger due = new AtomicInteger();

        void proceed() {
            if (due.getAndIncrement() == 0) {
                do {
                    attempt();
                } while (due.decrementAndGet() != 0);
            }
        }

        private void attempt() {
            long from = System.nanoTime();
            if (from >= end) {
                if (open.decrementAndGet() == 0) {
                    report.complete(json());
                }
                return;
            }
            bucket.tryConsume(permits).whenComplete((answer, error) -> {
                latencies.recordValue(Math.min(System.nanoTime() - from, latencies.getHighestTrackableValue()));
                if (error != null) {
                    errors.increment();
                } else if (answer) {
                    granted.increment();
                } else {
                    denied.increment();
                }
                proceed();
            });
        }
    }

    private JsonObject json() {
        JsonObject json = new JsonObject();
        json.addProperty("granted", granted.sum());
        json.addProperty("denied", denied.sum());
        json.addProperty("errors", errors.sum());
        json.addProperty("elapsedMs", (System.nanoTime() - start) / 1_000_000);
        json.addProperty("p50Us", latencies.getValueAtPercentile(50) / 1000);
        json.addProperty("p99Us", latencies.getValueAtPercentile(99) / 1000);
        json.addProperty("maxUs", latencies.getMaxValue() / 1000);
        return json;
    }
}

package compat.peer;

import java.util.concurrent.atomic.LongAdder;

import com.google.gson.JsonObject;
import org.HdrHistogram.ConcurrentHistogram;
import org.HdrHistogram.Histogram;

/** What became of the calls of a load, and how long each took. */
final class Tally {
    private final long start = System.nanoTime();
    private final LongAdder granted = new LongAdder();
    private final LongAdder denied = new LongAdder();
    private final LongAdder errors = new LongAdder();
    /** Nanoseconds, up to an hour, to three digits. */
    private final Histogram latencies = new ConcurrentHistogram(3_600_000_000_000L, 3);

    /** When the load began, by {@link System#nanoTime}. */
    long start() {
        return start;
    }

    /** A call that began then has ended now. */
    void count(long from, Boolean answer, Throwable error) {
        latencies.recordValue(Math.min(System.nanoTime() - from, latencies.getHighestTrackableValue()));
        (error != null ? errors : answer ? granted : denied).increment();
    }

    JsonObject report() {
        JsonObject report = new JsonObject();
        report.addProperty("granted", granted.sum());
        report.addProperty("denied", denied.sum());
        report.addProperty("errors", errors.sum());
        report.addProperty("elapsedMs", (System.nanoTime() - start) / 1_000_000);
        report.addProperty("p50Us", latencies.getValueAtPercentile(50) / 1000);
        report.addProperty("p99Us", latencies.getValueAtPercentile(99) / 1000);
        report.addProperty("maxUs", latencies.getMaxValue() / 1000);
        return report;
    }
}

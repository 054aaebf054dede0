package compat.peer;

import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.redisson.api.RFuture;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RedissonClient;

/** The protocol's operations, each a call of Redisson's asynchronous interface. */
final class Operations {
    private final RedissonClient client;
    private final Map<String, Operation> byName = Map.ofEntries(
        Map.entry("trySetRate", (l, c) -> RateCalls.trySetRate(l, c)),
        Map.entry("setRate", (l, c) -> RateCalls.setRate(l, c)),
        Map.entry("setRateArgs", (l, c) -> RateCalls.setRateArgs(l, c)),
        Map.entry("updateRate", (l, c) -> RateCalls.updateRate(l, c)),
        Map.entry("tryAcquire", Operations::tryAcquire),
        Map.entry("acquire", (l, c) -> l.acquireAsync(c.number("permits"))),
        Map.entry("release", (l, c) -> RateCalls.release(l, c)),
        Map.entry("availablePermits", (l, c) -> l.availablePermitsAsync()),
        Map.entry("delete", (l, c) -> l.deleteAsync()),
        Map.entry("isExists", (l, c) -> l.isExistsAsync()),
        Map.entry("clearExpire", (l, c) -> l.clearExpireAsync()),
        Map.entry("expire", Operations::expire),
        Map.entry("expireAt", Operations::expireAt),
        Map.entry("remainTimeToLive", (l, c) -> l.remainTimeToLiveAsync()),
        Map.entry("rename", (l, c) -> l.renameAsync(c.text("to"))),
        Map.entry("touch", (l, c) -> l.touchAsync()),
        Map.entry("sizeInMemory", (l, c) -> l.sizeInMemoryAsync()));

    Operations(RedissonClient client) {
        this.client = client;
    }

    /** One call of a limiter. */
    private interface Operation {
        RFuture<?> start(RRateLimiter limiter, Call call);
    }

    /** A running call: how to cancel it, and its result. */
    record Started(Future<?> handle, CompletionStage<?> stage) {
        static <F extends Future<?> & CompletionStage<?>> Started of(F future) {
            return new Started(future, future);
        }
    }

    /** Throws if it is known at once that the call is invalid. */
    Started start(Call call) {
        switch (call.op()) {
            case "setClock", "refund", "settle", "tryAcquireAll", "tryAcquireUpTo", "tryAcquireOnce", "pauseFor",
                "resume":
                throw new Releases.NotInThisRelease();
            case "getConfig":
                return Started.of(Configuration.of(client.getRateLimiter(call.text("name"))));
            case "load":
                return Started.of(Load.ofTrying(client, call));
            case "waitLoad":
                return Started.of(Load.ofWaiting(client, call));
            case "arrivalLoad":
                return Started.of(new Arrivals(client, call));
            case "semLoad":
                return Started.of(Semaphores.ofPlain(client, call));
            case "pxsLoad":
                return Started.of(Semaphores.ofExpirable(client, call));
            default:
                CompletableFuture<?> ofSemaphore = Semaphores.start(client, call);
                if (ofSemaphore != null) {
                    return Started.of(ofSemaphore);
                }
                Operation operation = byName.get(call.op());
                if (operation == null) {
                    throw new IllegalArgumentException("op: there is no " + call.op());
                }
                return Started.of(operation.start(client.getRateLimiter(call.text("name")), call));
        }
    }

    private static RFuture<?> tryAcquire(RRateLimiter limiter, Call call) {
        if (call.has("headroom")) {
            throw new Releases.NotInThisRelease();
        }
        long permits = call.number("permits");
        if (call.has("timeoutMs")) {
            return limiter.tryAcquireAsync(permits, call.number("timeoutMs"), TimeUnit.MILLISECONDS);
        }
        return limiter.tryAcquireAsync(permits);
    }

    private static RFuture<?> expire(RRateLimiter limiter, Call call) {
        Duration ttl = Duration.ofMillis(call.number("ttlMs"));
        return switch (condition(call)) {
            case "NX" -> limiter.expireIfNotSetAsync(ttl);
            case "XX" -> limiter.expireIfSetAsync(ttl);
            case "GT" -> limiter.expireIfGreaterAsync(ttl);
            case "LT" -> limiter.expireIfLessAsync(ttl);
            default -> limiter.expireAsync(ttl);
        };
    }

    private static RFuture<?> expireAt(RRateLimiter limiter, Call call) {
        Instant at = Instant.ofEpochMilli(call.number("epochMs"));
        return switch (condition(call)) {
            case "NX" -> limiter.expireIfNotSetAsync(at);
            case "XX" -> limiter.expireIfSetAsync(at);
            case "GT" -> limiter.expireIfGreaterAsync(at);
            case "LT" -> limiter.expireIfLessAsync(at);
            default -> limiter.expireAsync(at);
        };
    }

    private static String condition(Call call) {
        String condition = call.has("condition") ? call.text("condition") : "";
        return switch (condition) {
            case "", "NX", "XX", "GT", "LT" -> condition;
            default -> throw new IllegalArgumentException("condition: none of NX, XX, GT, LT");
        };
    }
}

package compat.peer;

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;

import org.redisson.api.RExpirable;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/**
 * The operations on semaphores: {@code sem…} on a plain one, {@code pxs…} on one whose permits have ids and
 * leases. A call that waits is Redisson's asynchronous one, or with {@code blocking} the one that blocks a thread:
 * their waiters are woken differently.
 */
final class Semaphores {
    /** Redisson's word for a lease that does not end. */
    private static final long NO_LEASE = -1;

    private static final Map<String, Plain> PLAIN = Map.of(
        "semTrySetPermits", (s, c) -> s.trySetPermitsAsync(permits(c)),
        "semAcquire", Semaphores::acquire,
        "semTryAcquire", Semaphores::tryAcquire,
        "semRelease", (s, c) -> s.releaseAsync(permits(c)),
        "semAvailable", (s, c) -> s.availablePermitsAsync(),
        "semAddPermits", (s, c) -> s.addPermitsAsync(permits(c)),
        "semDrain", (s, c) -> s.drainPermitsAsync());

    /** Since 3.19.1 there are also the number of all permits, and of those that are out. */
    private static final Map<String, Expirable> EXPIRABLE = Map.of(
        "pxsTrySetPermits", (s, c) -> s.trySetPermitsAsync(permits(c)),
        "pxsTryAcquire", Semaphores::tryAcquire,
        "pxsRelease", (s, c) -> s.tryReleaseAsync(c.text("permit")),
        "pxsAvailable", (s, c) -> s.availablePermitsAsync(),
        "pxsUpdateLease", (s, c) -> s.updateLeaseTimeAsync(c.text("permit"), leaseMs(c), TimeUnit.MILLISECONDS),
        "pxsAddPermits", (s, c) -> s.addPermitsAsync(permits(c)),
        "pxsSetPermits", (s, c) -> since3191(s, "setPermitsAsync", permits(c)),
        "pxsAcquired", (s, c) -> since3191(s, "acquiredPermitsAsync"),
        "pxsPermits", (s, c) -> since3191(s, "getPermitsAsync"));

    /** Of both kinds, after the prefix. */
    private static final Map<String, Lifetime> LIFETIME = Map.of(
        "Delete", (o, c) -> o.deleteAsync(),
        "Expire", (o, c) -> o.expireAsync(Duration.ofMillis(c.number("ttlMs"))),
        "ClearExpire", (o, c) -> o.clearExpireAsync());

    private Semaphores() {
    }

    private interface Plain {
        CompletionStage<?> start(RSemaphore semaphore, Call call);
    }

    private interface Expirable {
        CompletionStage<?> start(RPermitExpirableSemaphore semaphore, Call call);
    }

    private interface Lifetime {
        CompletionStage<?> start(RExpirable object, Call call);
    }

    /** Starts an operation on a semaphore; null if the call is none. */
    static CompletableFuture<?> start(RedissonClient client, Call call) {
        boolean isPlain = call.op().startsWith("sem");
        Lifetime lifetime = isPlain || call.op().startsWith("pxs") ? LIFETIME.get(call.op().substring(3)) : null;
        if (lifetime != null) {
            String name = call.text("name");
            RExpirable object = isPlain ? client.getSemaphore(name) : client.getPermitExpirableSemaphore(name);
            return lifetime.start(object, call).toCompletableFuture();
        }
        if (PLAIN.containsKey(call.op())) {
            RSemaphore semaphore = client.getSemaphore(call.text("name"));
            return PLAIN.get(call.op()).start(semaphore, call).toCompletableFuture();
        }
        if (EXPIRABLE.containsKey(call.op())) {
            RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(call.text("name"));
            return EXPIRABLE.get(call.op()).start(semaphore, call).toCompletableFuture();
        }
        return null;
    }

    /** Closed loops on a plain semaphore. */
    static Holders ofPlain(RedissonClient client, Call call) {
        RSemaphore semaphore = client.getSemaphore(call.text("name"));
        return new Holders(call,
            ms -> semaphore.tryAcquireAsync(1, ms, TimeUnit.MILLISECONDS).thenApply(granted -> granted ? "" : null),
            permit -> semaphore.releaseAsync());
    }

    /** Closed loops on a semaphore whose permits have ids. */
    static Holders ofExpirable(RedissonClient client, Call call) {
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(call.text("name"));
        long leaseMs = leaseMs(call);
        return new Holders(call,
            ms -> semaphore.tryAcquireAsync(ms, leaseMs, TimeUnit.MILLISECONDS),
            semaphore::tryReleaseAsync);
    }

    private static CompletionStage<?> acquire(RSemaphore semaphore, Call call) {
        int permits = permits(call);
        return call.flag("blocking", false)
            ? onThread(() -> {
                semaphore.acquire(permits);
                return null;
            })
            : semaphore.acquireAsync(permits);
    }

    private static CompletionStage<?> tryAcquire(RSemaphore semaphore, Call call) {
        int permits = permits(call);
        if (!call.has("timeoutMs")) {
            return semaphore.tryAcquireAsync(permits);
        }
        long ms = call.number("timeoutMs");
        return call.flag("blocking", false)
            ? onThread(() -> semaphore.tryAcquire(permits, ms, TimeUnit.MILLISECONDS))
            : semaphore.tryAcquireAsync(permits, ms, TimeUnit.MILLISECONDS);
    }

    private static CompletionStage<?> tryAcquire(RPermitExpirableSemaphore semaphore, Call call) {
        long waitMs = call.number("waitMs", 0);
        long leaseMs = leaseMs(call);
        return call.flag("blocking", false)
            ? onThread(() -> semaphore.tryAcquire(waitMs, leaseMs, TimeUnit.MILLISECONDS))
            : semaphore.tryAcquireAsync(waitMs, leaseMs, TimeUnit.MILLISECONDS);
    }

    private static <T> CompletableFuture<T> onThread(Callable<T> body) {
        CompletableFuture<T> result = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                result.complete(body.call());
            } catch (Throwable e) {
                result.completeExceptionally(e);
            }
        }, "blocking");
        thread.setDaemon(true);
        thread.start();
        return result;
    }

    private static CompletionStage<?> since3191(RPermitExpirableSemaphore semaphore, String name, Integer... args) {
        Class<?>[] types = args.length == 0 ? new Class<?>[0] : new Class<?>[] {int.class};
        return (CompletionStage<?>) Releases.invoke(
            Releases.method(RPermitExpirableSemaphore.class, name, types), semaphore, (Object[]) args);
    }

    private static int permits(Call call) {
        return (int) call.number("permits", Long.MIN_VALUE, Integer.MIN_VALUE, Integer.MAX_VALUE);
    }

    private static long leaseMs(Call call) {
        if (call.flag("renew", false)) {
            throw new Releases.NotInThisRelease();
        }
        return call.number("leaseMs", NO_LEASE);
    }
}

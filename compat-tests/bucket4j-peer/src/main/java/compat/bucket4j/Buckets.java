package compat.bucket4j;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.distributed.AsyncBucketProxy;
import io.github.bucket4j.distributed.proxy.AsyncProxyManager;
import io.github.bucket4j.distributed.proxy.optimization.Optimizations;
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce;
import io.lettuce.core.RedisClient;

/**
 * The buckets of one client, on one connection. Each name has one proxy that
 * all tasks share: batches form inside a proxy.
 */
final class Buckets {
    private final AsyncProxyManager<byte[]> manager;
    private final Map<String, AsyncBucketProxy> byName = new ConcurrentHashMap<>();

    Buckets(String url) {
        manager = Bucket4jLettuce.casBasedBuilder(RedisClient.create(url)).build().asAsync();
    }

    /** Creates a full bucket; false if this process already has one of this name. */
    boolean create(String name, long rate, long intervalMs) {
        BucketConfiguration configuration = BucketConfiguration.builder()
            .addLimit(limit -> limit.capacity(rate).refillIntervally(rate, Duration.ofMillis(intervalMs)))
            .build();
        AsyncBucketProxy bucket = manager.builder()
            .withOptimization(Optimizations.batching())
            .build(name.getBytes(StandardCharsets.UTF_8), () -> CompletableFuture.completedFuture(configuration));
        return byName.putIfAbsent(name, bucket) == null;
    }

    AsyncBucketProxy get(String name) {
        AsyncBucketProxy bucket = byName.get(name);
        if (bucket == null) {
            throw new IllegalArgumentException("name: no rate was set for it in this process");
        }
        return bucket;
    }

    /** The releases that are actually on the class path, as recorded by the build. */
    static String version() {
        return System.getProperty("peer.version", "unknown");
    }
}

package compat.peer;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;

import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RateLimiterConfig;

/**
 * The answer of getConfig, or null if there is no limiter. Redisson then answers
 * rate 0 and interval 0, or in old releases fails to read the fields; both can
 * also be caused by a hash with such contents, so this looks for the key.
 */
final class Configuration {
    private Configuration() {
    }

    static CompletableFuture<JsonElement> of(RRateLimiter limiter) {
        return limiter.getConfigAsync().handle((config, error) -> {
            boolean doubtful = error == null
                ? config.getRate() == 0 && config.getRateInterval() == 0
                : Failure.of(error).kind().equals("CorruptState");
            CompletionStage<Boolean> exists = doubtful
                ? limiter.isExistsAsync() : CompletableFuture.completedFuture(true);
            return exists.thenApply(there -> {
                if (!there) {
                    return (JsonElement) JsonNull.INSTANCE;
                }
                if (error != null) {
                    throw error instanceof CompletionException wrapped ? wrapped : new CompletionException(error);
                }
                return json(config);
            });
        }).thenCompose(answer -> answer).toCompletableFuture();
    }

    /** Without the keep-alive, which no release returns. */
    private static JsonObject json(RateLimiterConfig config) {
        JsonObject json = new JsonObject();
        json.addProperty("mode", config.getRateType().name());
        json.addProperty("rate", config.getRate());
        json.addProperty("intervalMs", config.getRateInterval());
        return json;
    }
}

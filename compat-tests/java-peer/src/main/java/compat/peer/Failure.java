package compat.peer;

import java.io.IOException;
import java.util.Locale;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.regex.Pattern;

import org.redisson.client.RedisConnectionException;
import org.redisson.client.RedisTimeoutException;

/** An exception of Redisson's as one of the protocol's error kinds. */
record Failure(String kind, String message) {
    private static final Pattern EXCEEDS = Pattern.compile("Requested permits amount (cannot|could not) exceed");
    private static final Pattern AUTH = Pattern.compile("NOAUTH|WRONGPASS|NOPERM|invalid password|AUTH failed|ERR AUTH");
    private static final Pattern AWAY = Pattern.compile("LOADING |MASTERDOWN|CLUSTERDOWN");

    static Failure of(Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null && (cause instanceof CompletionException || cause instanceof ExecutionException)) {
            cause = cause.getCause();
        }
        String message = cause.getMessage() == null ? cause.toString() : cause.getMessage();
        return new Failure(kind(cause, message), message);
    }

    private static String kind(Throwable error, String message) {
        if (error instanceof CancellationException) {
            return "Cancelled";
        }
        if (message.contains("RateLimiter is not initialized")) {
            return "NotInitialized";
        }
        if (EXCEEDS.matcher(message).find()) {
            return "ExceedsRate";
        }
        if (message.contains("WRONGTYPE")) {
            return "WrongType";
        }
        if (AUTH.matcher(message).find()) {
            return "Auth";
        }
        // What the decoders of replies throw: a field that is no number, a type that is neither mode.
        if (error instanceof NumberFormatException || error instanceof IndexOutOfBoundsException) {
            return "CorruptState";
        }
        if (error instanceof IllegalArgumentException) {
            return "InvalidArgument";
        }
        if (error instanceof RedisConnectionException || error instanceof IOException || AWAY.matcher(message).find()
            || message.toLowerCase(Locale.ROOT).contains("connection refused")) {
            return "Unavailable";
        }
        if (error instanceof RedisTimeoutException) {
            return "Timeout";
        }
        return "Other";
    }
}

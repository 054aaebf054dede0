package compat.peer;

import java.io.IOException;
import java.util.StringJoiner;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.regex.Pattern;

import org.redisson.client.RedisConnectionException;
import org.redisson.client.RedisTimeoutException;

/** Maps exceptions of Redisson's to the error kinds of the protocol. */
record Failure(String kind, String message) {
    private static final Pattern EXCEEDS = Pattern.compile("Requested permits amount (cannot|could not) exceed");
    private static final Pattern AUTH = Pattern.compile("NOAUTH|WRONGPASS|NOPERM|invalid password|AUTH failed|ERR AUTH");
    private static final Pattern COMMAND = Pattern.compile("channel: \\[|[Cc]ommand: \\(|params: |CommandData \\[");
    private static final Pattern AWAY = Pattern.compile("LOADING |MASTERDOWN|CLUSTERDOWN");

    /** The outermost exception that has a kind decides, as some are wrapped in generic ones; but Auth explains all others. */
    static Failure of(Throwable error) {
        Failure decided = null;
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            String kind = isWrapper(cause) ? "Other" : kind(cause);
            if (kind.equals("Auth") || decided == null && !kind.equals("Other")) {
                decided = new Failure(kind, message(cause));
            }
        }
        return decided != null ? decided : new Failure("Other", chain(error));
    }

    /** Each message from the outermost exception inwards, on one line. */
    static String chain(Throwable error) {
        StringJoiner messages = new StringJoiner(": ");
        String last = "";
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            String message = message(cause).replace('\n', ' ');
            if (!isWrapper(cause) && !last.contains(message)) {
                messages.add(message);
                last = message;
            }
        }
        return messages.toString();
    }

    private static boolean isWrapper(Throwable error) {
        return error.getCause() != null
            && (error instanceof CompletionException || error instanceof ExecutionException);
    }

    private static String message(Throwable error) {
        return error.getMessage() == null ? error.toString() : error.getMessage();
    }

    private static String kind(Throwable error) {
        if (error instanceof CancellationException) {
            return "Cancelled";
        }
        String said = said(error);
        if (AUTH.matcher(said).find()) {
            return "Auth";
        }
        if (error instanceof RedisTimeoutException) {
            return "Timeout";
        }
        if (error instanceof RedisConnectionException || error instanceof IOException || AWAY.matcher(said).find()) {
            return "Unavailable";
        }
        if (said.contains("RateLimiter is not initialized")) {
            return "NotInitialized";
        }
        if (EXCEEDS.matcher(said).find()) {
            return "ExceedsRate";
        }
        if (said.contains("WRONGTYPE")) {
            return "WrongType";
        }
        // Thrown by the decoders of replies: a field that is not a number, a type that is neither mode.
        if (error instanceof NumberFormatException || error instanceof IndexOutOfBoundsException) {
            return "CorruptState";
        }
        return error instanceof IllegalArgumentException ? "InvalidArgument" : "Other";
    }

    /** The message without the command that Redisson may append, as that contains the whole script with its error texts. */
    private static String said(Throwable error) {
        return COMMAND.split(message(error), 2)[0];
    }
}

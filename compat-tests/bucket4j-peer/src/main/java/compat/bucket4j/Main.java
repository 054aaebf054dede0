package compat.bucket4j;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;

/**
 * A process that owns one client of bucket4j on Lettuce and runs the part of
 * the peer protocol that the benchmarks need: {@code trySetRate},
 * {@code availablePermits} and {@code load}.
 */
public final class Main {
    private static final PrintStream OUT =
        new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

    private Main() {
    }

    public static void main(String[] args) throws IOException {
        if (args.length != 2 || !args[0].equals("--redis")) {
            System.err.println("usage: bucket4j-peer --redis redis://[[user]:password@]host:port[/db]");
            System.exit(2);
        }
        Buckets buckets = new Buckets(args[1]);

        JsonObject ready = new JsonObject();
        ready.addProperty("ready", true);
        ready.addProperty("clientId", UUID.randomUUID().toString());
        ready.addProperty("version", Buckets.version());
        send(ready);

        BufferedReader lines = new BufferedReader(
            new InputStreamReader(new FileInputStream(FileDescriptor.in), StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject call = JsonParser.parseString(line).getAsJsonObject();
            start(buckets, call).whenComplete((result, error) -> reply(call.get("id"), result, error));
        }
        System.exit(0);
    }

    private static CompletableFuture<? extends JsonElement> start(Buckets buckets, JsonObject call) {
        try {
            String name = call.get("name").getAsString();
            return switch (call.get("op").getAsString()) {
                case "trySetRate" -> {
                    boolean fresh = buckets.create(name, call.get("rate").getAsLong(), call.get("intervalMs").getAsLong());
                    yield CompletableFuture.completedFuture(new JsonPrimitive(fresh));
                }
                case "availablePermits" -> buckets.get(name).getAvailableTokens().thenApply(JsonPrimitive::new);
                case "load" -> Load.start(buckets.get(name), call);
                default -> throw new IllegalArgumentException("op: not in this peer");
            };
        } catch (RuntimeException e) {
            return CompletableFuture.failedFuture(e);
        }
    }

    private static void reply(JsonElement id, JsonElement result, Throwable error) {
        JsonObject reply = new JsonObject();
        reply.add("id", id);
        if (error == null) {
            reply.add("result", result);
        } else {
            JsonObject described = new JsonObject();
            described.addProperty("kind", "Other");
            described.addProperty("message", error.toString());
            reply.add("error", described);
        }
        send(reply);
    }

    private static synchronized void send(JsonObject line) {
        OUT.print(line + "\n");
        OUT.flush();
    }
}

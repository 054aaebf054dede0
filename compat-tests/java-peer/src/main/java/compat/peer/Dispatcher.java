package compat.peer;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

import com.google.gson.JsonElement;
import com.google.gson.JsonPrimitive;
import org.redisson.api.RedissonClient;

/** Starts the call of each line, keeps track of running calls, and sends their replies. */
final class Dispatcher {
    private final Operations operations;
    private final Replies replies;
    private final Map<Long, Future<?>> running = new ConcurrentHashMap<>();
    private final AtomicInteger unanswered = new AtomicInteger();

    Dispatcher(RedissonClient client, Replies replies) {
        this.operations = new Operations(client);
        this.replies = replies;
    }

    void line(String line) {
        Call call;
        try {
            call = Call.parse(line);
        } catch (Call.Malformed e) {
            replies.error(e.id(), "InvalidArgument", e.getMessage());
            return;
        }
        JsonElement id = new JsonPrimitive(call.id());
        try {
            if (call.op().equals("cancel")) {
                Future<?> other = running.get(call.number("call"));
                boolean cancelled = other != null && other.cancel(true);
                replies.result(id, new JsonPrimitive(cancelled));
                return;
            }
            if (running.containsKey(call.id())) {
                throw new IllegalArgumentException("id: a call with this id is running");
            }
            start(call, id);
        } catch (Throwable e) {
            fail(id, e);
        }
    }

    /** Waits until every call is answered, up to a limit. */
    void awaitIdle(long ms) throws InterruptedException {
        long end = System.nanoTime() + ms * 1_000_000;
        while (unanswered.get() != 0 && System.nanoTime() < end) {
            Thread.sleep(5);
        }
    }

    private void start(Call call, JsonElement id) {
        Operations.Started started = operations.start(call);
        unanswered.incrementAndGet();
        running.put(call.id(), started.handle());
        started.stage().whenComplete((value, error) -> {
            // Before its reply, because the id may be used again from then on.
            running.remove(call.id());
            answer(id, value, error);
            unanswered.decrementAndGet();
        });
    }

    private void answer(JsonElement id, Object value, Throwable error) {
        if (error != null) {
            fail(id, error);
            return;
        }
        try {
            replies.result(id, Results.json(value));
        } catch (RuntimeException e) {
            fail(id, e);
        }
    }

    private void fail(JsonElement id, Throwable error) {
        Failure failure = Failure.of(error);
        replies.error(id, failure.kind(), failure.message());
    }
}

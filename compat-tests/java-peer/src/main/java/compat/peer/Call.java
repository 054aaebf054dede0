package compat.peer;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonPrimitive;
import com.google.gson.Strictness;
import org.redisson.api.RateType;

/** One line of input: an id, the name of an operation, and its arguments, checked as they are read. */
record Call(long id, String op, JsonObject args) {
    private static final Gson GSON = new GsonBuilder().setStrictness(Strictness.STRICT).create();

    /** A line that is not a call. Its reply carries the id that the line gave. */
    static final class Malformed extends Exception {
        private static final long serialVersionUID = 1;
        private final transient JsonElement id;

        Malformed(JsonElement id, String message) {
            super(message);
            this.id = id;
        }

        JsonElement id() {
            return id;
        }
    }

    static Call parse(String line) throws Malformed {
        JsonObject object;
        try {
            JsonElement value = GSON.fromJson(line, JsonElement.class);
            if (value == null || !value.isJsonObject()) {
                throw new Malformed(JsonNull.INSTANCE, "the line is not a JSON object");
            }
            object = value.getAsJsonObject();
        } catch (JsonParseException e) {
            throw new Malformed(JsonNull.INSTANCE, "the line is not JSON");
        }
        JsonElement id = object.has("id") ? object.get("id") : JsonNull.INSTANCE;
        Long number = integer(id);
        if (number == null) {
            throw new Malformed(id, "id: not an integer");
        }
        if (!(object.get("op") instanceof JsonPrimitive op && op.isString())) {
            throw new Malformed(id, "op: not a string");
        }
        return new Call(number, op.getAsString(), object);
    }

    /** An argument is absent if it is left out or null. */
    boolean has(String key) {
        JsonElement value = args.get(key);
        return value != null && !value.isJsonNull();
    }

    String text(String key) {
        if (args.get(key) instanceof JsonPrimitive value && value.isString()) {
            return value.getAsString();
        }
        throw new IllegalArgumentException(key + ": not a string");
    }

    long number(String key) {
        Long value = integer(args.get(key));
        if (value == null) {
            throw new IllegalArgumentException(key + ": not an integer");
        }
        return value;
    }

    long number(String key, long absent) {
        return has(key) ? number(key) : absent;
    }

    long number(String key, long absent, long least, long most) {
        long value = number(key, absent);
        if (value < least || value > most) {
            throw new IllegalArgumentException(key + ": not within " + least + ".." + most);
        }
        return value;
    }

    double decimal(String key) {
        if (args.get(key) instanceof JsonPrimitive value && value.isNumber()) {
            return value.getAsDouble();
        }
        throw new IllegalArgumentException(key + ": not a number");
    }

    boolean flag(String key, boolean absent) {
        if (!has(key)) {
            return absent;
        }
        if (args.get(key) instanceof JsonPrimitive value && value.isBoolean()) {
            return value.getAsBoolean();
        }
        throw new IllegalArgumentException(key + ": not a boolean");
    }

    RateType mode() {
        return switch (text("mode")) {
            case "OVERALL" -> RateType.OVERALL;
            case "PER_CLIENT" -> RateType.PER_CLIENT;
            default -> throw new IllegalArgumentException("mode: neither OVERALL nor PER_CLIENT");
        };
    }

    private static Long integer(JsonElement value) {
        if (value instanceof JsonPrimitive primitive && primitive.isNumber()) {
            try {
                return Long.valueOf(primitive.getAsString());
            } catch (NumberFormatException e) {
                return null;
            }
        }
        return null;
    }
}

package compat.peer;

import java.lang.reflect.Method;
import java.time.Duration;

import org.redisson.api.RFuture;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RRateLimiterAsync;
import org.redisson.api.RateType;

/**
 * The calls that were added or changed over the releases: intervals as a number
 * with a unit at first, as a duration with a keep-alive since 3.38, as one object
 * since 4.4; {@code release} since 3.52.
 */
final class RateCalls {
    private static final Class<?> LIMITER = RRateLimiterAsync.class;
    private static final Class<?> ARGS = Releases.type("org.redisson.api.ratelimiter.RateLimiterArgs");
    private static final Class<?> UNIT = Releases.type("org.redisson.api.RateIntervalUnit");

    private static final Method TRY_SET_RATE = withDuration("trySetRateAsync");
    private static final Method SET_RATE = withDuration("setRateAsync");
    private static final Method TRY_SET_RATE_UNIT = withUnit("trySetRateAsync");
    private static final Method SET_RATE_UNIT = withUnit("setRateAsync");
    private static final Method SET_RATE_ARGS = Releases.method(LIMITER, "setRateAsync", ARGS);
    private static final Method UPDATE_RATE = Releases.method(LIMITER, "updateRateAsync", ARGS);
    private static final Method RELEASE = Releases.method(LIMITER, "releaseAsync", long.class);

    private static final Method ARGS_OF = Releases.method(ARGS, "of", RateType.class, long.class, Duration.class);
    private static final Method ARGS_KEEP_ALIVE = Releases.method(ARGS, "keepAliveTime", Duration.class);
    private static final Method ARGS_KEEP_STATE = Releases.method(ARGS, "keepState", boolean.class);

    private RateCalls() {
    }

    static RFuture<?> trySetRate(RRateLimiter limiter, Call call) {
        return rateCall(TRY_SET_RATE, TRY_SET_RATE_UNIT, limiter, call);
    }

    static RFuture<?> setRate(RRateLimiter limiter, Call call) {
        return rateCall(SET_RATE, SET_RATE_UNIT, limiter, call);
    }

    static RFuture<?> setRateArgs(RRateLimiter limiter, Call call) {
        return (RFuture<?>) Releases.invoke(SET_RATE_ARGS, limiter, args(call));
    }

    static RFuture<?> updateRate(RRateLimiter limiter, Call call) {
        return (RFuture<?>) Releases.invoke(UPDATE_RATE, limiter, args(call));
    }

    static RFuture<?> release(RRateLimiter limiter, Call call) {
        return (RFuture<?>) Releases.invoke(RELEASE, limiter, call.number("permits"));
    }

    private static RFuture<?> rateCall(Method withDuration, Method withUnit, RRateLimiter limiter, Call call) {
        RateType mode = call.mode();
        long rate = call.number("rate");
        long intervalMs = call.number("intervalMs");
        long keepAliveMs = call.number("keepAliveMs", 0);
        if (withDuration == null && keepAliveMs == 0) {
            return (RFuture<?>) Releases.invoke(withUnit, limiter, mode, rate, intervalMs, milliseconds());
        }
        return (RFuture<?>) Releases.invoke(withDuration, limiter, mode, rate,
            Duration.ofMillis(intervalMs), Duration.ofMillis(keepAliveMs));
    }

    private static Object args(Call call) {
        Object args = Releases.invoke(ARGS_OF, null, call.mode(), call.number("rate"),
            Duration.ofMillis(call.number("intervalMs")));
        if (call.has("keepAliveMs")) {
            args = Releases.invoke(ARGS_KEEP_ALIVE, args, Duration.ofMillis(call.number("keepAliveMs")));
        }
        if (call.has("keepState")) {
            args = Releases.invoke(ARGS_KEEP_STATE, args, call.flag("keepState", false));
        }
        return args;
    }

    private static Object milliseconds() {
        for (Object unit : UNIT.getEnumConstants()) {
            if (unit.toString().equals("MILLISECONDS")) {
                return unit;
            }
        }
        throw new Releases.NotInThisRelease();
    }

    private static Method withDuration(String name) {
        return Releases.method(LIMITER, name, RateType.class, long.class, Duration.class, Duration.class);
    }

    private static Method withUnit(String name) {
        return Releases.method(LIMITER, name, RateType.class, long.class, long.class, UNIT);
    }
}

package compat.peer;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;

/** Looks up what only some releases of Redisson have. */
final class Releases {
    private Releases() {
    }

    /** A call, or an argument, that this release of Redisson lacks. */
    static final class NotInThisRelease extends RuntimeException {
        private static final long serialVersionUID = 1;

        NotInThisRelease() {
            super("not in this release");
        }
    }

    /** The first of these types that exists, or null. */
    static Class<?> type(String... names) {
        for (String name : names) {
            try {
                return Class.forName(name);
            } catch (ClassNotFoundException e) {
                // the next one
            }
        }
        return null;
    }

    /** The public method, or null; a null among the parameter types means that there is none. */
    static Method method(Class<?> owner, String name, Class<?>... parameters) {
        if (owner == null) {
            return null;
        }
        for (Class<?> parameter : parameters) {
            if (parameter == null) {
                return null;
            }
        }
        try {
            return owner.getMethod(name, parameters);
        } catch (NoSuchMethodException e) {
            return null;
        }
    }

    /** Calls the method, and throws what it throws. */
    static Object invoke(Method method, Object target, Object... args) {
        if (method == null) {
            throw new NotInThisRelease();
        }
        try {
            return method.invoke(target, args);
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw new IllegalStateException(e.getCause());
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }
}

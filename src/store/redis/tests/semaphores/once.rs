//! Each call counts once, however often it is carried out.

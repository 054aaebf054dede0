//! Windows of the calendar: days, weeks, months, quarters and years of a time zone.
//!
//! A server knows no time zones: a call carries the bounds of the windows around its time.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use super::window::Grid;

const DAY_US: i64 = 86_400_000_000;

/// The windows of [`Policy::calendar_window`](crate::Policy::calendar_window).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From one local midnight to the next: 23 to 25 hours.
    Day,
    /// Seven days, from Monday on unless [set otherwise](crate::Policy::with_first_weekday).
    Week,
    /// From the first of a month on.
    Month,
    /// From the first of January, April, July or October on.
    Quarter,
    /// From the first of January on.
    Year,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Weekday {
    Monday = 1,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Calendar {
    pub(crate) unit: CalendarUnit,
    /// The first day of a week, Monday being 1.
    pub(crate) first_weekday: u8,
    pub(crate) zone: Zone,
    /// The time for whose windows a call carries the bounds, in microseconds, if its own time does not say.
    pub(crate) around: Option<i64>,
}

impl Calendar {
    /// The starts of the window before, of the one that contains this time or the one before it, and of the next
    /// two. (Where the clocks go back over midnight, a date occurs twice.)
    pub(crate) fn bounds(&self, us: i64) -> [i64; 4] {
        let day = self.zone.day(us);
        [-1, 0, 1, 2].map(|units| self.zone.first_instant(self.first_day(day, units)))
    }

    /// The bounds of the window that contains this time.
    fn window(&self, now: i64) -> (i64, i64) {
        let bounds = self.bounds(now);
        let pairs = bounds.windows(2).map(|pair| (pair[0], pair[1]));
        let (first, last) = ((bounds[0], bounds[1]), (bounds[2], bounds[3]));
        let found = pairs.into_iter().find(|(from, to)| (*from..*to).contains(&now));
        found.unwrap_or(if now < first.0 { first } else { last })
    }

    /// The first day of the unit with this day, and so many units later.
    fn first_day(&self, day: i64, units: i64) -> i64 {
        let months = match self.unit {
            CalendarUnit::Day => return day + units,
            CalendarUnit::Week => {
                // 1970 began on a Thursday.
                let weekday = (day + 4 - i64::from(self.first_weekday)).rem_euclid(7);
                return day - weekday + 7 * units;
            }
            CalendarUnit::Month => 1,
            CalendarUnit::Quarter => 3,
            CalendarUnit::Year => 12,
        };
        day_of_month(month_of_day(day).div_euclid(months) * months + units * months)
    }
}

/// The months since the year 0 of a day since 1970; by Howard Hinnant's "chrono-compatible low-level date
/// algorithms".
fn month_of_day(day: i64) -> i64 {
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // Years begin in March.
    (era * 400 + year) * 12 + (5 * of_year + 2) / 153 + 2
}

/// The first day of a month since the year 0, as days since 1970.
fn day_of_month(month: i64) -> i64 {
    let (year, month) = ((month - 2).div_euclid(12), (month - 2).rem_euclid(12));
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let days = of_era * 365 + of_era / 4 - of_era / 100 + (153 * month + 2) / 5;
    era * 146_097 + days - 719_468
}

impl Calendar {
    /// Unit and zone, as the parameters have them.
    pub(super) fn text(&self) -> String {
        let unit = match self.unit {
            CalendarUnit::Day => "D".to_owned(),
            CalendarUnit::Week => format!("W{}", self.first_weekday),
            CalendarUnit::Month => "M".to_owned(),
            CalendarUnit::Quarter => "Q".to_owned(),
            CalendarUnit::Year => "Y".to_owned(),
        };
        format!("{unit},{}", self.zone)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (unit, zone) = text.split_once(',')?;
        let mut first_weekday = 1;
        let unit = match unit {
            "D" => CalendarUnit::Day,
            "M" => CalendarUnit::Month,
            "Q" => CalendarUnit::Quarter,
            "Y" => CalendarUnit::Year,
            week => {
                let day = week.strip_prefix('W')?.parse().ok();
                first_weekday = day.filter(|day| (1..=7).contains(day))?;
                CalendarUnit::Week
            }
        };
        Some(Calendar { unit, first_weekday, zone: zone.parse().ok()?, around: None })
    }
}

impl Grid for Calendar {
    fn end(&self, now: i64) -> i64 {
        self.window(now).1
    }

    fn width(&self, now: i64) -> i64 {
        let (from, to) = self.window(now);
        to - from
    }
}

/// A time zone of the IANA database.
#[derive(Clone)]
pub(crate) enum Zone {
    Utc,
    #[cfg(feature = "time-zones")]
    Named(jiff::tz::TimeZone),
}

impl Zone {
    /// The local date at this time, as days since 1970.
    fn day(&self, us: i64) -> i64 {
        match self {
            Zone::Utc => us.div_euclid(DAY_US),
            #[cfg(feature = "time-zones")]
            Zone::Named(zone) => {
                let time = jiff::Timestamp::from_microsecond(us).unwrap_or_default();
                let offset = zone.to_offset(time).seconds();
                (us + i64::from(offset) * 1_000_000).div_euclid(DAY_US)
            }
        }
    }

    /// The first instant of a local date: not always midnight, which some dates lack and others have twice.
    fn first_instant(&self, day: i64) -> i64 {
        match self {
            Zone::Utc => day * DAY_US,
            #[cfg(feature = "time-zones")]
            Zone::Named(zone) => {
                let date = jiff::civil::date(1970, 1, 1).checked_add(jiff::Span::new().days(day));
                let first = date.and_then(|date| date.to_zoned_datetime(zone.clone()));
                first.map_or(day * DAY_US, |first| first.timestamp().as_microsecond())
            }
        }
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Zone::Utc => "UTC",
            #[cfg(feature = "time-zones")]
            Zone::Named(zone) => zone.iana_name().unwrap_or("UTC"),
        })
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is wrong with the name.
impl FromStr for Zone {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name == "UTC" {
            return Ok(Zone::Utc);
        }
        #[cfg(feature = "time-zones")]
        return jiff::tz::TimeZone::get(name).map(Zone::Named).map_err(|error| error.to_string());
        #[cfg(not(feature = "time-zones"))]
        Err("only UTC is known without the feature `time-zones`".to_owned())
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Zone {}

impl Hash for Zone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.to_string().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calendar(unit: &str) -> Calendar {
        Calendar::parse(unit).expect("a calendar")
    }

    /// Seconds since 1970.
    fn bounds(unit: &str, at: i64) -> [i64; 4] {
        calendar(unit).bounds(at * 1_000_000).map(|us| us / 1_000_000)
    }

    #[test]
    fn windows_begin_at_the_first_of_their_days() {
        // 2028-02-29 12:00.
        let leap_day = 1_835_438_400;
        let (february, march, april) = (1_832_976_000, 1_835_481_600, 1_838_160_000);
        assert_eq!(bounds("M,UTC", leap_day), [1_830_297_600, february, march, april]);
        assert_eq!(bounds("D,UTC", leap_day)[1..3], [march - 86_400, march]);
        assert_eq!(bounds("Q,UTC", leap_day)[1..3], [1_830_297_600, april]);
        assert_eq!(bounds("Y,UTC", leap_day)[1..3], [1_830_297_600, 1_861_920_000]);
        // A Tuesday.
        let monday = march - 2 * 86_400;
        assert_eq!(bounds("W1,UTC", leap_day)[1..3], [monday, monday + 7 * 86_400]);
        assert_eq!(bounds("W7,UTC", leap_day)[1], monday - 86_400);
        assert_eq!(bounds("W2,UTC", leap_day)[1], monday + 86_400);
    }

    #[cfg(feature = "time-zones")]
    #[test]
    fn days_follow_the_clocks_of_their_zone() {
        // The clocks of Berlin go back on 2025-10-26, which has 25 hours.
        let day = 1_761_429_600;
        assert_eq!(
            bounds("D,Europe/Berlin", day + 3600),
            [day - 86_400, day, day + 90_000, day + 176_400]
        );
        // On 2024-09-08 Santiago has no midnight: the day begins at one o'clock.
        let day = 1_725_768_000;
        assert_eq!(
            bounds("D,America/Santiago", day),
            [day - 86_400, day, day + 82_800, day + 169_200]
        );
        // On 2024-11-03 the clocks of Havana go from one o'clock back to midnight, which occurs twice.
        let day = 1_730_606_400;
        let havana = bounds("D,America/Havana", day + 5400);
        assert_eq!(havana, [day - 86_400, day, day + 90_000, day + 176_400]);
        // The first hour of the month is in the old summer time, elsewhere it is not.
        assert_eq!(bounds("M,Europe/Berlin", 1_761_429_600)[1..3], [1_759_269_600, 1_761_951_600]);
    }
}

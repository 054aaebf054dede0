//! Windows of the calendar: days, weeks, months, quarters and years of a time zone.
//!
//! A server knows no time zones: a call carries the bounds of the windows around its time.

use std::hash::{Hash, Hasher};

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

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

/// The units, with the letter that the parameters have, and the days and months of a window.
const UNITS: [(CalendarUnit, &str, i64, i64); 5] = [
    (CalendarUnit::Day, "D", 1, 0),
    (CalendarUnit::Week, "W", 7, 0),
    (CalendarUnit::Month, "M", 0, 1),
    (CalendarUnit::Quarter, "Q", 0, 3),
    (CalendarUnit::Year, "Y", 0, 12),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Calendar {
    pub(crate) unit: CalendarUnit,
    /// The first day of a week, Monday being 1.
    pub(crate) first_weekday: u8,
    pub(crate) zone: TimeZone,
    /// The time for whose windows a call carries the bounds, in microseconds, if its own time does not say.
    pub(crate) around: Option<i64>,
}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl Calendar {
    /// The starts of the window before, of the one that contains this time or the one before it, and of the next
    /// two. (Where the clocks go back over midnight, a date occurs twice.)
    pub(crate) fn bounds(&self, us: i64) -> [i64; 4] {
        let time = Timestamp::from_microsecond(us).unwrap_or_default();
        let first = self.first_date(self.zone.to_datetime(time).date());
        // Dates that no calendar has are thousands of years away.
        [-1, 0, 1, 2].map(|units| self.start(first, units).unwrap_or(us))
    }

    /// The first instant of the date so many units later: not always midnight, which some dates lack and others have
    /// twice.
    fn start(&self, first: Date, units: i64) -> Result<i64, jiff::Error> {
        let (_, _, days, months) = UNITS[self.unit as usize];
        let date = first.checked_add(Span::new().days(days * units).months(months * units))?;
        Ok(date.to_zoned_datetime(self.zone.clone())?.timestamp().as_microsecond())
    }

    /// The bounds of the window that contains this time.
    pub(super) fn window(&self, now: i64) -> (i64, i64) {
        let bounds = self.bounds(now);
        let pairs = bounds.windows(2).map(|pair| (pair[0], pair[1]));
        let (first, last) = ((bounds[0], bounds[1]), (bounds[2], bounds[3]));
        let found = pairs.into_iter().find(|(from, to)| (*from..*to).contains(&now));
        found.unwrap_or(if now < first.0 { first } else { last })
    }

    /// The first date of the unit with this date.
    fn first_date(&self, day: Date) -> Date {
        match UNITS[self.unit as usize] {
            (.., days, 0) => {
                let into_week = day.weekday().to_monday_one_offset() - self.first_weekday as i8;
                day.saturating_sub(Span::new().days(i64::from(into_week).rem_euclid(days)))
            }
            (.., months) => {
                date(day.year(), (day.month() - 1) / months as i8 * months as i8 + 1, 1)
            }
        }
    }

    /// Unit and zone, as the parameters have them.
    pub(super) fn text(&self) -> String {
        let (unit, letter, ..) = UNITS[self.unit as usize];
        let weekday = Some(self.first_weekday).filter(|_| unit == CalendarUnit::Week);
        let weekday = weekday.map_or(String::new(), |day| day.to_string());
        format!("{letter}{weekday},{}", self.zone.iana_name().unwrap_or("UTC"))
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (unit, zone) = text.split_once(',')?;
        let (letter, weekday) = unit.split_at_checked(1)?;
        let (unit, ..) = *UNITS.iter().find(|(_, it, ..)| *it == letter)?;
        let first_weekday = match unit {
            CalendarUnit::Week => weekday.parse().ok().filter(|day| (1..=7).contains(day))?,
            _ => weekday.is_empty().then_some(1)?,
        };
        Some(Calendar { unit, first_weekday, zone: zone_named(zone).ok()?, around: None })
    }
}

/// A time zone of the IANA database, or what is wrong with its name.
pub(super) fn zone_named(name: &str) -> Result<TimeZone, String> {
    match name {
        "UTC" => Ok(TimeZone::UTC),
        _ if cfg!(feature = "time-zones") => TimeZone::get(name).map_err(|error| error.to_string()),
        _ => Err("only UTC is known without the feature `time-zones`".to_owned()),
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

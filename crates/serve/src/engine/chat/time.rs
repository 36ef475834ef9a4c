//! Times in the format of `strftime`.

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Days of the week. The first is Thursday, the weekday of 1 January 1970.
const DAYS: [&str; 7] =
    ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Formats a UTC time, in seconds since 1970, with a format of `strftime`. Unknown specifiers are
/// copied unchanged.
pub(super) fn written_time(format: &str, seconds: u64) -> String {
    let time = Time::new(seconds);
    let mut written = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            written.push(character);
            continue;
        }
        let specifier = characters.next();
        match specifier.and_then(|specifier| time.part(specifier)) {
            Some(part) => written += &part,
            None => written.extend(std::iter::once('%').chain(specifier)),
        }
    }
    written
}

/// Day of the calendar.
struct Date {
    year: u64,
    /// Month, from 0.
    month: usize,
    /// Day of the month, from 1.
    day: u64,
    /// Day of the year, from 1.
    day_of_year: u64,
}

impl Date {
    /// Returns the date that is `days` days after 1 January 1970.
    fn of_day(days: u64) -> Self {
        let (mut year, mut rest) = (1970, days);
        let length = |year: u64| {
            let leaps =
                year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
            if leaps { 366 } else { 365 }
        };
        while rest >= length(year) {
            rest -= length(year);
            year += 1;
        }
        let day_of_year = rest + 1;
        let february = if length(year) == 366 { 29 } else { 28 };
        let mut month = 0;
        for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
            if rest < days {
                break;
            }
            rest -= days;
            month += 1;
        }
        Self { year, month, day: rest + 1, day_of_year }
    }
}

/// Date, day of the week, and time of the day.
struct Time {
    date: Date,
    weekday: &'static str,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Time {
    /// Makes a time from UTC seconds since 1970.
    fn new(seconds: u64) -> Self {
        let (days, of_day) = (seconds / 86_400, seconds % 86_400);
        Self {
            date: Date::of_day(days),
            weekday: DAYS[(days % 7) as usize],
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
        }
    }

    /// Returns the text for a specifier of `strftime`; `None` if the specifier is unknown.
    fn part(&self, specifier: char) -> Option<String> {
        let Self { date, weekday, hour, minute, second } = self;
        let Date { year, month, day, day_of_year } = date;
        let (month, name) = (month + 1, MONTHS[*month]);
        Some(match specifier {
            'Y' => year.to_string(),
            'y' => format!("{:02}", year % 100),
            'm' => format!("{month:02}"),
            'B' => name.to_owned(),
            'b' => name[..3].to_owned(),
            'd' => format!("{day:02}"),
            'e' => format!("{day:2}"),
            'j' => format!("{day_of_year:03}"),
            'A' => (*weekday).to_owned(),
            'a' => weekday[..3].to_owned(),
            'H' => format!("{hour:02}"),
            'I' => format!("{:02}", (hour + 11) % 12 + 1),
            'p' => if *hour < 12 { "AM" } else { "PM" }.to_owned(),
            'M' => format!("{minute:02}"),
            'S' => format!("{second:02}"),
            'F' => format!("{year}-{month:02}-{day:02}"),
            'T' => format!("{hour:02}:{minute:02}:{second:02}"),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written() {
        let format = "%Y-%m-%d %H:%M:%S %A %d %B %b %a %j %I %p %y %% %Q";
        let expected = "2024-02-29 13:05:09 Thursday 29 February Feb Thu 060 01 PM 24 % %Q";
        assert_eq!(written_time(format, 1_709_211_909), expected);
        assert_eq!(written_time("%F %e", 0), "1970-01-01  1");
    }
}

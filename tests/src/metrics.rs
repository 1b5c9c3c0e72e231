/// Metrics in the Prometheus text format.
#[derive(Clone, Debug)]
pub struct ScrapedMetrics(pub(crate) String);

impl ScrapedMetrics {
    /// Returns the sum of all series of a metric that have at least these labels, or `None` if there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut values = self.0.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (series_name, series_labels) = series.split_once('{').unwrap_or((series, ""));
            let has_label = |(key, value): &(&str, &str)| series_labels.contains(&format!("{key}=\"{value}\""));
            (series_name == name && labels.iter().all(has_label)).then(|| value.parse::<f64>().ok())?
        });
        let first = values.next()?;
        Some(values.fold(first, |sum, value| sum + value))
    }

    pub fn text(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_over_matching_series() {
        let text = "# HELP a_total x\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"1\",y=\"3\"} 4\na_total 1\nb 5\n";
        let metrics = ScrapedMetrics(text.to_owned());
        let table: [(&str, &[(&str, &str)], Option<f64>); 5] = [
            ("a_total", &[], Some(8.0)),
            ("a_total", &[("x", "1")], Some(7.0)),
            ("a_total", &[("x", "1"), ("y", "3")], Some(4.0)),
            ("a_total", &[("x", "2")], None),
            ("b", &[], Some(5.0)),
        ];
        for (name, labels, expected) in table {
            assert_eq!(metrics.sum(name, labels), expected, "{name} {labels:?}");
        }
    }
}

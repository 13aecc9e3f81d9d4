//! Places labels beside points, so that none covers another.

/// The approximate width of a character and height of a line, in pixels.
const CHARACTER: i32 = 8;
const HEIGHT: i32 = 16;
/// The distance of a label from its point, in pixels.
const GAP: i32 = 8;
/// The most rows by which a label may move up or down.
const ROWS: i32 = 16;

/// A part of a picture, in pixels from its left upper corner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) left: i32,
    pub(crate) top: i32,
    pub(crate) right: i32,
    pub(crate) bottom: i32,
}

impl Frame {
    fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn contains(&self, other: &Self) -> bool {
        self.left <= other.left
            && other.right <= self.right
            && self.top <= other.top
            && other.bottom <= self.bottom
    }
}

/// The position of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) left_top: (i32, i32),
    /// The end of a line from the point to the label, where the label is not right beside it.
    pub(crate) leader: Option<(i32, i32)>,
}

/// The occupied parts of a picture.
#[derive(Debug)]
pub(crate) struct Labels {
    frame: Frame,
    taken: Vec<Frame>,
}

impl Labels {
    /// No labels yet within `frame`, and points at `spots` that should not be covered.
    pub(crate) fn new(frame: Frame, spots: &[(i32, i32)]) -> Self {
        let taken = spots.iter().map(|&(x, y)| Frame {
            left: x - GAP / 2,
            top: y - GAP / 2,
            right: x + GAP / 2,
            bottom: y + GAP / 2,
        });
        Self {
            frame,
            taken: taken.collect(),
        }
    }

    /// Returns the free position nearest to `spot`: right or left of it, in its row or some rows up or down. Without a free
    /// one, it is right of it.
    pub(crate) fn place(&mut self, (x, y): (i32, i32), text: &str) -> Label {
        let width = i32::try_from(text.chars().count()).unwrap_or(0) * CHARACTER;
        let rows = (0..=ROWS).flat_map(|row| [(row, -row), (row, row)]);
        let places = rows.flat_map(|(away, row)| {
            let side = GAP + away * 2;
            [x + side, x - side - width].map(|left| Frame {
                left,
                top: y - HEIGHT / 2 + row * HEIGHT,
                right: left + width,
                bottom: y + HEIGHT / 2 + row * HEIGHT,
            })
        });
        let mut places = places.peekable();
        let first = places.peek().copied();
        let free = |place: &Frame| {
            self.frame.contains(place) && self.taken.iter().all(|taken| !taken.overlaps(place))
        };
        let place = places.find(free).or(first).unwrap_or(self.frame);
        self.taken.push(place);
        let near = if place.left > x {
            place.left
        } else {
            place.right
        };
        let middle = place.top + HEIGHT / 2;
        Label {
            left_top: (place.left, place.top),
            leader: (middle != y).then_some((near, middle)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: Frame = Frame {
        left: 0,
        top: 0,
        right: 900,
        bottom: 500,
    };

    #[test]
    fn a_lonely_label_is_right_of_its_point_and_left_of_it_at_the_edge() {
        let mut labels = Labels::new(PAGE, &[(100, 100), (890, 100)]);
        assert_eq!(
            labels.place((100, 100), "bins 4"),
            Label {
                left_top: (108, 92),
                leader: None
            }
        );
        let at_the_edge = labels.place((890, 100), "bins 4");
        assert_eq!(at_the_edge.left_top, (890 - 8 - 48, 92));
    }

    /// The line begins at the side of the label that is nearer to the point.
    #[test]
    fn a_label_in_another_row_has_a_line_to_its_point() {
        let mut labels = Labels::new(PAGE, &[(100, 100)]);
        let four = [(); 4].map(|()| labels.place((100, 100), "bins 4"));
        let [right, left, right_above, left_above] = four;
        assert_eq!((right.leader, left.leader), (None, None));
        assert_eq!(right_above.leader, Some((110, 84)));
        assert_eq!(left_above.leader, Some((90, 84)));
    }

    proptest! {
        /// This holds even where all points are the same.
        #[test]
        fn labels_keep_clear_of_each_other_and_of_all_points(
            spots in proptest::collection::vec((400_i32..420, 200_i32..220), 1..20),
        ) {
            let mut labels = Labels::new(PAGE, &spots);
            let points = labels.taken.clone();
            let names = spots.iter().map(|spot| {
                let (left, top) = labels.place(*spot, "segments 8").left_top;
                Frame { left, top, right: left + 10 * CHARACTER, bottom: top + HEIGHT }
            });
            let names: Vec<Frame> = names.collect();
            for (index, name) in names.iter().enumerate() {
                prop_assert!(PAGE.contains(name));
                for point in &points {
                    prop_assert!(!name.overlaps(point));
                }
                for other in &names[..index] {
                    prop_assert!(!name.overlaps(other));
                }
            }
        }
    }
}

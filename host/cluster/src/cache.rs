//! A cache of all objects of one kind, which a watch on the kind keeps current.

use std::{collections::BTreeMap, ops::Bound};

use parking_lot::RwLock;

/// Namespace and name of an object, ordered as in the lists of the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Empty for kinds that are not namespaced.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: Option<&str>, name: &str) -> Self {
        Self {
            namespace: namespace.unwrap_or_default().to_owned(),
            name: name.to_owned(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct ObjectCache<V>(RwLock<CachedObjects<V>>);

#[derive(Debug)]
struct CachedObjects<V> {
    objects: BTreeMap<Key, V>,
    pending_objects: BTreeMap<Key, V>,
    is_synced: bool,
}

impl<V> Default for ObjectCache<V> {
    fn default() -> Self {
        Self(RwLock::new(CachedObjects {
            objects: BTreeMap::new(),
            pending_objects: BTreeMap::new(),
            is_synced: false,
        }))
    }
}

impl<V> ObjectCache<V> {
    fn change_contents<T>(&self, change: impl FnOnce(&mut CachedObjects<V>) -> T) -> T {
        change(&mut self.0.write())
    }

    fn read_contents<T>(&self, look: impl FnOnce(&CachedObjects<V>) -> T) -> T {
        look(&self.0.read())
    }

    /// Starts a list. The previous objects remain in the cache until the list is complete.
    pub(crate) fn begin_list(&self) {
        self.change_contents(|contents| contents.pending_objects.clear());
    }

    pub(crate) fn add_to_list(&self, key: Key, object: V) {
        self.change_contents(|contents| contents.pending_objects.insert(key, object));
    }

    pub(crate) fn end_list(&self) {
        self.change_contents(|contents| {
            contents.objects = std::mem::take(&mut contents.pending_objects);
            contents.is_synced = true;
        });
    }

    /// Puts an object into the cache. Returns whether it differs from the object that had this key before.
    pub(crate) fn insert(&self, key: Key, object: V) -> bool
    where
        V: PartialEq,
    {
        self.change_contents(|contents| {
            let is_other = contents.objects.get(&key) != Some(&object);
            contents.objects.insert(key, object);
            is_other
        })
    }

    pub(crate) fn remove(&self, key: &Key) {
        self.change_contents(|contents| contents.objects.remove(key));
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.read_contents(|contents| contents.is_synced)
    }

    pub(crate) fn len(&self) -> usize {
        self.read_contents(|contents| contents.objects.len())
    }
}

impl<V: Clone> ObjectCache<V> {
    pub(crate) fn all_objects(&self) -> Vec<(Key, V)> {
        let pair = |(key, object): (&Key, &V)| (key.clone(), object.clone());
        self.read_contents(|contents| contents.objects.iter().map(pair).collect())
    }

    pub(crate) fn get(&self, key: &Key) -> Option<V> {
        self.read_contents(|contents| contents.objects.get(key).cloned())
    }

    /// Returns a page of the cached objects, sorted by their keys: at most `limit` objects for which `is_wanted` holds,
    /// beginning after the key `after`. If more such objects follow, also returns the key of the page's last object.
    pub(crate) fn page(
        &self,
        namespace: Option<&str>,
        after: Option<&Key>,
        limit: usize,
        is_wanted: impl Fn(&V) -> bool,
    ) -> (Vec<V>, Option<Key>) {
        let first = Key::new(namespace, "");
        let start = match after {
            // `after` is the key of the last object of the previous page, so the page begins after it. But a plugin
            // sends `after`, and may send the key of an object in another namespace. The page still never begins before
            // the first object of the listed namespace.
            Some(after) if *after >= first => Bound::Excluded(after),
            _ => Bound::Included(&first),
        };
        self.read_contents(|contents| {
            let mut matching = contents
                .objects
                .range((start, Bound::Unbounded))
                .take_while(|(key, _)| namespace.is_none_or(|namespace| key.namespace == namespace))
                .filter(|(_, object)| is_wanted(object));
            let mut objects = Vec::new();
            let mut last_key = None;
            for (key, object) in matching.by_ref().take(limit) {
                objects.push(object.clone());
                last_key = Some(key);
            }
            let rest = last_key.filter(|_| matching.next().is_some());
            (objects, rest.cloned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_list_replaces_all_cached_objects() {
        let cache = ObjectCache::default();
        let key = |namespace, name| Key::new(Some(namespace), name);
        cache.begin_list();
        cache.add_to_list(key("b", "y"), 1);
        cache.add_to_list(key("a", "x"), 2);
        assert!(!cache.is_synced() && cache.get(&key("b", "y")).is_none());
        cache.end_list();
        assert!(cache.insert(key("aa", "x"), 0) && cache.insert(key("aa", "x"), 3));
        assert!(!cache.insert(key("aa", "x"), 3), "the same object");
        assert!(cache.is_synced());
        let list = |namespace| cache.page(namespace, None, usize::MAX, |_| true);
        assert_eq!(list(None), (vec![2, 3, 1], None), "by namespace and name");
        assert_eq!(
            list(Some("a")),
            (vec![2], None),
            "one namespace is no prefix of another"
        );

        cache.begin_list();
        cache.add_to_list(key("c", "z"), 4);
        assert_eq!(cache.get(&key("a", "x")), Some(2));
        cache.begin_list();
        cache.add_to_list(key("d", "z"), 5);
        cache.end_list();
        assert_eq!(list(None), (vec![5], None), "a list that broke off leaves nothing");
        cache.remove(&key("d", "z"));
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn the_next_page_begins_after_the_given_key() {
        let cache = ObjectCache::default();
        let key = |namespace, name| Key::new(Some(namespace), name);
        for (number, (namespace, name)) in [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("c", "x")]
            .into_iter()
            .enumerate()
        {
            cache.insert(key(namespace, name), number);
        }
        // (namespace, key after which the page begins, limit, expected objects, expected key of the page's last object)
        // The expected key is `None` if no objects follow the page.
        for (namespace, after, limit, objects, rest) in [
            (None, None, 2, vec![0, 2], Some(key("b", "x"))),
            (None, Some(key("b", "x")), 2, vec![4], None),
            (None, None, 3, vec![0, 2, 4], None),
            (Some("b"), None, 1, vec![2], None),
            (Some("b"), Some(key("a", "zzz")), 9, vec![2], None),
            (Some("b"), Some(key("c", "x")), 9, vec![], None),
            (None, Some(key("b", "between")), 9, vec![2, 4], None),
        ] {
            let page = cache.page(namespace, after.as_ref(), limit, |number| number % 2 == 0);
            assert_eq!(page, (objects, rest), "{namespace:?} {after:?} {limit}");
        }
    }
}

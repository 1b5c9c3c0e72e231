use wasmtime::{
    Store,
    component::{Instance, Lift, WasmList},
};
use wasmtime_wizer::{ComponentContext, ComponentInstanceState, Wizer};

use crate::{engine::chain, store::CallState};

/// Creates a component from the memory and the globals of a configured instance. An error is the reason why
/// that is impossible.
pub(crate) async fn take(
    wizer: &Wizer,
    context: &ComponentContext<'_>,
    store: &mut Store<CallState>,
    instance: Instance,
) -> Result<Vec<u8>, String> {
    // The memory would still refer to them, and they end with this instance.
    if !store.data().holds_nothing() {
        return Err("`configure` leaves a host resource open, such as a standard stream".to_owned());
    }
    store.data_mut().make_room_for_snapshot();
    // The memory is copied out in one call.
    store.set_hostcall_fuel(usize::MAX);
    let mut reader = Reader {
        store,
        instance,
        error: None,
    };
    let snapshot = wizer.snapshot_component(context, &mut reader).await;
    match (snapshot, reader.error) {
        (Ok(snapshot), None) => Ok(snapshot),
        (Ok(_), Some(error)) | (Err(error), _) => Err(chain(&error)),
    }
}

/// Reads an instrumented instance. Unlike wizer's own reader, it keeps errors instead of panicking.
struct Reader<'a> {
    store: &'a mut Store<CallState>,
    instance: Instance,
    /// The first error; values that were read after it are meaningless.
    error: Option<wasmtime::Error>,
}

impl Reader<'_> {
    async fn read<R: Lift + Send + Sync + 'static>(&mut self, instance: &str, function: &str) -> Option<R> {
        if self.error.is_some() {
            return None;
        }
        match self.call(instance, function).await {
            Ok(value) => Some(value),
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }

    async fn call<R: Lift + Send + Sync + 'static>(
        &mut self,
        instance: &str,
        function: &str,
    ) -> wasmtime::Result<R> {
        let absent = || wasmtime::format_err!("`{instance}#{function}` is absent");
        let (_, parent) = self
            .instance
            .get_export(&mut *self.store, None, instance)
            .ok_or_else(absent)?;
        let (_, index) = self
            .instance
            .get_export(&mut *self.store, Some(&parent), function)
            .ok_or_else(absent)?;
        let function = self
            .instance
            .get_typed_func::<(), (R,)>(&mut *self.store, index)?;
        Ok(function.call_async(&mut *self.store, ()).await?.0)
    }
}

impl ComponentInstanceState for Reader<'_> {
    async fn call_func_ret_list_u8(
        &mut self,
        instance: &str,
        func: &str,
        contents: impl FnOnce(&[u8]) + Send,
    ) {
        match self.read::<WasmList<u8>>(instance, func).await {
            Some(list) => contents(list.as_le_slice(&*self.store)),
            None => contents(&[]),
        }
    }

    async fn call_func_ret_s32(&mut self, instance: &str, func: &str) -> i32 {
        self.read(instance, func).await.unwrap_or_default()
    }

    async fn call_func_ret_s64(&mut self, instance: &str, func: &str) -> i64 {
        self.read(instance, func).await.unwrap_or_default()
    }

    async fn call_func_ret_f32(&mut self, instance: &str, func: &str) -> u32 {
        self.read::<f32>(instance, func)
            .await
            .unwrap_or_default()
            .to_bits()
    }

    async fn call_func_ret_f64(&mut self, instance: &str, func: &str) -> u64 {
        self.read::<f64>(instance, func)
            .await
            .unwrap_or_default()
            .to_bits()
    }
}

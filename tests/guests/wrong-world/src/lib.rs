//! A valid component that is not a plugin, which the host must report when it loads the component.

#[cfg(target_family = "wasm")]
#[expect(unsafe_code, reason = "generated: the component's boundary")]
mod component {
    wit_bindgen::generate!({
        inline: "
            package example:greeter@1.0.0;

            world greeter {
                export greet: func(name: string) -> string;
            }
        ",
    });

    struct Component;

    impl Guest for Component {
        fn greet(name: String) -> String {
            format!("Hello, {name}!")
        }
    }

    export!(Component);
}

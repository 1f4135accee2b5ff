(* A known chain in OCaml, whose compiler writes its own call frame information. *)
let[@inline never] hot n =
  let x = ref n in
  for i = 1 to 2000000 do
    x := (!x * 16807 + i) land 0x3fffffff
  done;
  !x

let[@inline never] gamma_fn n = hot (n + 1) + 3
let[@inline never] beta n = gamma_fn (n * 2) + 2
let[@inline never] alpha n = beta (n + 7) + 1

let () =
  let ms = float_of_int (if Array.length Sys.argv > 1 then int_of_string Sys.argv.(1) else 1000) in
  let sum = ref 0 in
  while Sys.time () *. 1000.0 < ms do
    sum := !sum + alpha !sum
  done;
  if !sum = 42 then print_newline ()

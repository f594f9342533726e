declare module '*.sql' {
  const text: string;
  export default text;
}

declare module '*.txt' {
  const text: string;
  export default text;
}

declare module '*/Dockerfile' {
  const text: string;
  export default text;
}

declare module '*/enter' {
  const text: string;
  export default text;
}

declare module '*/relay' {
  const text: string;
  export default text;
}

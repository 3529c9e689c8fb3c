declare module "virtual:licenses" {
  const licenses: { name: string; version: string; license: string; text: string }[];
  export default licenses;
}
declare module "*.css";
